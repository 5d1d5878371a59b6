"""Short names for directories: when a listing gets them, what it then says, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lam_vllm import Compaction, Compactor, CompactorConfig, reconstruct
from lam_vllm.aliases import choose_aliases, definitions, shortened, split_definitions, written_out
from lam_vllm.reconstruct import look_up

CONTRIB = "/workspace/django__django__3.1/django/contrib/"
LISTING = [
    f"{CONTRIB}{app}/{name}" for app in ("admin", "auth", "sites") for name in ("apps.py", "forms.py", "views.py")
]
SHORT = [
    f"[@1/ is {CONTRIB} below]",
    *(f"@1/{app}/{name}" for app in ("admin", "auth", "sites") for name in ("apps.py", "forms.py", "views.py")),
]


def compacted(count_tokens: Callable[[str], int], *texts: str, aliases: bool = True) -> Compaction:
    config = CompactorConfig(profile="exact", directory_aliases=aliases)
    return Compactor(config, count_tokens).compact([{"role": "tool", "content": text} for text in texts])


def texts_of(compaction: Compaction) -> list[str]:
    return [message["content"] for message in compaction.messages]


def test_a_listing_defines_its_directory_once(count_tokens: Callable[[str], int]) -> None:
    compaction = compacted(count_tokens, "\n".join(LISTING))
    assert texts_of(compaction) == ["\n".join(SHORT)]
    (decision,) = compaction.decisions
    assert (decision.layer, decision.start, decision.end, decision.stub) == ("alias", 0, 0, SHORT[0])
    saved = count_tokens("\n".join(LISTING)) - count_tokens("\n".join(SHORT))
    assert compaction.report.saved_tokens == saved == decision.removed_tokens - decision.stub_tokens


def test_without_the_option_nothing_is_renamed(count_tokens: Callable[[str], int]) -> None:
    assert not compacted(count_tokens, "\n".join(LISTING), aliases=False).changed


def test_a_few_lines_do_not_pay_for_a_definition(count_tokens: Callable[[str], int]) -> None:
    assert not compacted(count_tokens, "\n".join(LISTING[:1]) + "\nand nothing else").changed


def test_lines_count_from_the_definition_on(count_tokens: Callable[[str], int]) -> None:
    compaction = compacted(count_tokens, "\n".join(LISTING), "\n".join(["other", *LISTING[2:6]]))
    assert texts_of(compaction)[1].startswith("other\n[lines 4-7 of result 1 repeat]")
    assert look_up(compaction.messages, 1, 4, 7) == "\n".join(LISTING[2:6])


def test_lines_that_repeat_do_not_ask_for_a_name(count_tokens: Callable[[str], int]) -> None:
    text = "\n".join(LISTING)
    repeated = texts_of(compacted(count_tokens, text, "header\n" + text))[1]
    assert repeated.startswith("header\n[lines 2-10 of result 1 repeat]")


def test_text_that_begins_a_line_like_a_short_name_keeps_its_directories(count_tokens: Callable[[str], int]) -> None:
    assert not compacted(count_tokens, "\n".join([*LISTING, "@1/admin"])).changed


def test_a_definition_that_a_tool_printed_passes_whole(count_tokens: Callable[[str], int]) -> None:
    compaction = compacted(count_tokens, "\n".join(SHORT))
    assert texts_of(compaction) == ["\\" + "\n".join(SHORT)]
    assert compaction.report.reasons == {"stub_like_input": 1}
    assert reconstruct(compaction.messages)[0]["content"] == "\n".join(SHORT)


def test_the_longest_directory_wins_and_any_order_reads_back() -> None:
    aliases = ("/a/", "/a/b/c/", "/a/b/")
    assert [shortened(path, aliases) for path in ("/a/x", "/a/b/x", "/a/b/c/x", "/z")] == ["@1/x", "@3/x", "@2/x", "/z"]


def test_choosing_is_bounded_on_hostile_listings() -> None:
    deep = ["a/" * 5_000, *("a/" * 100 + str(number) for number in range(50))]
    (alias,) = choose_aliases(deep, {})
    assert alias == "a/" * 24


paths = st.lists(st.sampled_from(["a", "b", "@1", "", "x y", "é"]), max_size=4).map("/".join)


@given(st.lists(paths, max_size=8), st.lists(paths.map(lambda path: path + "/"), max_size=3, unique=True))
def test_writing_out_is_the_inverse(lines: list[str], aliases: list[str]) -> None:
    for line in lines:
        if not line.startswith("@"):
            assert written_out(shortened(line, tuple(aliases)), tuple(aliases)) == line


@given(st.lists(st.from_regex(r"\A[^\s\[\]]{0,9}/\Z"), max_size=3), st.lists(st.sampled_from(["", "x", "[no]"])))
def test_definitions_read_back(aliases: list[str], lines: list[str]) -> None:
    printed: list[Any] = [*definitions(tuple(aliases)), *lines]
    assert split_definitions(printed) == (tuple(aliases), lines)
