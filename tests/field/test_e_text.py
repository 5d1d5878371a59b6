"""Group E: text is what the model will read: nothing is normalised, fused, torn, or lost without a trace."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from lam_vllm import Compactor, EncoderError, make_config, reconstruct
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import Encoder
from lam_vllm.stubs import Stub, parse_stub
from lam_vllm.windows import fixed_windows, line_windows

from .agent import FOLDER, LINES, MODELS, MODULE, OTHER, Make, agent, emitted, ledger, listing, numbered

SOURCE = """\
class Harbour:
    def __init__(self, berths):
        self.berths = berths
        self.ships = []

    def moor(self, ship, guests=0):
        if len(self.ships) >= self.berths:
            return None
        self.ships.append((ship, guests))
        return ship

    def sail(self, ship):
        if ship not in self.ships:
            return None

        self.ships.remove(ship)
        return ship

    def count(self):
        total = {
            "ships": len(self.ships),
            "berths": self.berths,
        }
        return total
"""
TABLE = "\n".join(
    ["| ship | berth | state |", "|---|---|---|", *[f"| {name} | 3 | moored |" for name in ("Ada", "Bo", "Cy")]]
)


def giant(kind: str, length: int) -> str:
    """One line in which no two places are alike."""
    words = [hashlib.blake2b(str(n).encode(), digest_size=12) for n in range(length // 16)]
    if kind == "base64":
        return base64.b64encode(b"".join(word.digest() for word in words)).decode()
    return "; ".join(f"f{n}=a=>g(a,{word.hexdigest()[:8]!r})" for n, word in enumerate(words))[:length]


def stubs_in(text: str) -> list[Stub]:
    return [stub for line in text.split("\n") if (stub := parse_stub(line)) is not None]


def covered(stub: Stub) -> int:
    """How many lines the reference says are left out."""
    if stub.kind == "repeat":
        return stub.many * stub.times
    return stub.many if stub.kind == "next" else stub.last - stub.first + 1


def test_f61_redraws_and_colours_are_text_like_any_other(make_careful: Make) -> None:
    bar = "\r".join(f"downloading the charts {percent:3}% of all" for percent in range(0, 100, 8))
    green, red = f"\x1b[32m{bar}\x1b[0m", f"\x1b[31m{bar}\x1b[0m"
    messages = agent(green, f"{green}\ndone\r", red)
    compaction = make_careful().compact(messages)
    contents = emitted(compaction)
    assert contents[0] == green
    assert contents[1].split("\n")[0].startswith("[line 1 of result 1 repeats]")
    assert contents[1].split("\n")[1] == "done\r"
    assert contents[2] == red
    assert reconstruct(compaction.messages) == messages


def test_f61_40_redraws_are_one_line_and_no_escape_sequence_is_torn(make_careful: Make) -> None:
    green = "\r".join(f"\x1b[32mcharts {percent:3}%\x1b[0m of all, wait" for percent in range(40))
    red = green.replace("\x1b[32m", "\x1b[31m")
    messages = agent(green, f"{green}\ndone", f"{red}\ndone")
    compaction = make_careful().compact(messages)
    contents = emitted(compaction)
    assert contents[0] == green
    assert [line.partition("]")[0] for line in contents[1].split("\n")] == [
        "[parts 1-41 of result 1 repeat, from «\x1b[32mcharts »",
        "done",
    ]
    assert not any(line.endswith(("\x1b", "\x1b[")) for content in contents for line in content.split("\n"))
    assert reconstruct(compaction.messages) == messages


def test_f63_composed_and_decomposed_letters_are_different_text(make_careful: Make) -> None:
    composed = "\n".join(f"caf\u00e9 number {n} on the quay of M\u00e1laga opens at {n}" for n in range(6, 12))
    decomposed = composed.replace("\u00e9", "e\u0301").replace("\u00e1", "a\u0301")
    messages = agent(composed, decomposed, composed)
    compaction = make_careful().compact(messages)
    assert emitted(compaction)[:2] == [composed, decomposed]
    assert emitted(compaction)[2].startswith("[result 1 repeats]")
    assert reconstruct(compaction.messages) == messages


def test_f63_composed_and_decomposed_directories_have_no_short_name_in_common(make_careful: Make) -> None:
    composed = listing("berth", "crew", "tide", folder="/srv/pilot/workspace/m\u00e1laga/contrib/")
    decomposed = composed.replace("\u00e1", "a\u0301")
    compaction = make_careful(directory_aliases=True).compact(agent(f"{composed}\n{decomposed}"))
    assert sorted(stub.prefix for stub in stubs_in(emitted(compaction)[0])) == sorted(
        listing_.split("berth")[0] for listing_ in (composed, decomposed)
    )
    assert reconstruct(compaction.messages) == agent(f"{composed}\n{decomposed}")


@pytest.mark.parametrize("kind", ["minified", "base64"])
def test_f65_a_giant_line_costs_linear_work_and_its_repeat_is_found(
    kind: str, make_careful: Make, remembering: Encoder
) -> None:
    line = giant(kind, 1_000_000)
    counted: list[int] = []

    def count_characters(text: str) -> int:
        counted.append(len(text))
        return len(text) // 3

    compaction = Compactor(make_careful().config, count_characters, remembering).compact(agent(line, line))
    assert emitted(compaction)[0] == line
    assert len(emitted(compaction)[1]) < len(line) / 1000
    assert sum(counted) <= 2.1 * len(line)
    assert compaction.report.work.encoder_calls == 0


def test_f65_a_giant_listing_costs_linear_work(make_careful: Make, remembering: Encoder) -> None:
    files = listing(*(f"{hashlib.blake2b(str(n).encode(), digest_size=4).hexdigest()}" for n in range(2_000)))
    counted: list[int] = []

    def count_characters(text: str) -> int:
        counted.append(len(text))
        return len(text) // 3

    config = make_careful(directory_aliases=True, max_windows=0).config
    compaction = Compactor(config, count_characters, remembering).compact(agent(files, files))
    assert len(emitted(compaction)[0]) < 0.7 * len(files)
    assert len(emitted(compaction)[1]) < 200
    assert sum(counted) <= 6 * len(files)


def test_f65_a_giant_line_costs_the_papers_rule_no_more_than_its_cap(
    count_tokens: Callable[[str], int], encoder: Encoder
) -> None:
    config = make_config({"profile": "paper", "max_windows": 2})
    compaction = Compactor(config, count_tokens, encoder).compact(agent(giant("base64", 100_000)))
    assert compaction.report.work.encoder_calls == 2
    assert compaction.report.reasons == {"cap_windows": 1}


def test_f65_a_result_over_the_cap_passes_whole_and_says_so(make: Make) -> None:
    compaction = make(max_observation_bytes=1000).compact(agent(MODULE, MODULE, OTHER, OTHER))
    assert emitted(compaction)[:3] == [MODULE, MODULE, OTHER]
    assert compaction.report.reasons["cap_observation_bytes"] == 2
    assert len(emitted(compaction)[3]) < len(OTHER)


@pytest.mark.parametrize("cut", [fixed_windows, line_windows])
def test_f66_tokens_that_are_pieces_of_one_character_never_tear_it(cut: Callable[..., tuple[object, ...]]) -> None:
    served = Tokenizer.from_file(str(MODELS / "smollm2/tokenizer.json"))
    text = "帆船は港に着いた 🚢⚓ na\u0308chste\n" * 4 + "𓊝" * 20
    assert len(served.encode("𓊝").ids) > 1
    for budget in (1, 2, 3, 7):
        windows = cut(text, lambda piece: served.encode(piece, add_special_tokens=False).offsets, budget)
        pieces = [text[window.start : window.end] for window in windows]  # type: ignore[attr-defined]
        assert "".join(pieces) == text
        assert all(pieces)


def test_f66_parts_of_long_lines_are_cut_between_characters(make_careful: Make) -> None:
    line = ", ".join(f"船{n}号は港に着いた⚓🚢" for n in range(160))
    messages = agent(line, f"[{line}]")
    compaction = make_careful().compact(messages)
    assert compaction.changed
    kept = [line for line in emitted(compaction)[1].split("\n") if parse_stub(line) is None]
    assert all(line.endswith((", ", "[", "]")) for line in kept)
    assert reconstruct(compaction.messages) == messages


def test_f66_an_encoder_without_character_offsets_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    shutil.copytree(MODELS / "minilm", folder)
    (folder / "tokenizer.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "CanineTokenizer"}))
    with pytest.raises(EncoderError, match="character offsets"):
        load_encoder(str(folder))


def test_f67_blank_lines_braces_returns_and_table_rows_do_not_vanish(make_careful: Make) -> None:
    first, second = f"{SOURCE}\n{TABLE}\n{{\n}}\n", f"{TABLE}\n\n}}\n\n{SOURCE.replace('berths', 'quays')}"
    contents = emitted(make_careful().compact(agent(first, second)))
    assert contents[0] == first
    assert stubs_in(contents[1])
    assert set(second.split("\n")) <= {*first.split("\n"), *contents[1].split("\n")}


def test_f67_kept_lines_and_counts_add_up(count_tokens: Callable[[str], int]) -> None:
    first, second = f"{SOURCE}\n{TABLE}\n{{\n}}\n", f"{TABLE}\n\n}}\n\n{SOURCE.replace('berths', 'quays')}"
    content = emitted(Compactor(make_config({"profile": "exact"}), count_tokens).compact(agent(first, second)))[1]
    stubs = stubs_in(content)
    assert content.count("\n") + 1 - len(stubs) + sum(map(covered, stubs)) == second.count("\n") + 1


def test_f67_lines_that_repeat_inside_a_text_leave_their_count(make_careful: Make) -> None:
    text = "\n".join(
        ["start", *["waiting for the pilot to come aboard"] * 30, "}", "}", "", "", "return None", "return None"]
    )
    content = emitted(make_careful().compact(agent(text)))[0]
    assert [covered(stub) for stub in stubs_in(content)] == [29]
    assert content.endswith("\n}\n}\n\n\nreturn None\nreturn None")


def test_f67_every_line_of_a_listing_is_there_under_its_short_name(make_careful: Make) -> None:
    files = [*listing("berth", "crew", "tide").split("\n"), "", "}", "9 files"]
    content = emitted(make_careful(directory_aliases=True).compact(agent("\n".join(files))))[0].split("\n")
    assert content[1:] == [line.replace(FOLDER, "@1/") for line in files]
    assert [stub.prefix for stub in stubs_in(content[0])] == [FOLDER]


def test_f68_kept_lines_stand_in_order_as_they_were_indented(make_careful: Make) -> None:
    edited = SOURCE.replace("guests=0", "guests=2").replace("return total", "return dict(total)")
    content = emitted(make_careful().compact(agent(SOURCE, edited)))[1]
    waiting = iter(edited.split("\n"))
    assert all(line in waiting for line in content.split("\n") if parse_stub(line) is None)
    assert stubs_in(content)


def test_f68_a_python_file_parses_or_shows_a_marker_that_is_no_python(make_careful: Make) -> None:
    edited = SOURCE.replace("guests=0", "guests=2")
    contents = emitted(make_careful().compact(agent(SOURCE, edited, edited)))
    assert [bool(stubs_in(content)) for content in contents] == [False, True, True]
    assert ast.parse(contents[0])
    for content in contents[1:]:
        with pytest.raises(SyntaxError):
            ast.parse(content)


def test_f69_every_marker_tells_which_lines_or_how_many_are_gone(make_careful: Make) -> None:
    visits = [numbered(LINES), numbered(["import sails", *LINES]), MODULE + "\n" + "beep\n" * 60, ledger(0), ledger(1)]
    messages = agent(*visits)
    compaction = make_careful().compact(messages)
    assert len(compaction.decisions) >= 3
    for cut in compaction.decisions:
        stub = parse_stub(cut.stub)
        assert stub is not None
        gone = messages[cut.message]["content"][cut.start : cut.end].removesuffix("\n").count("\n") + 1
        if stub.kind == "result":
            assert visits[stub.result - 1].count("\n") + 1 == gone
        elif cut.layer == "l0":
            assert covered(stub) == gone
        else:
            assert cut.target_lines == (stub.first, stub.last)


def test_f71_no_result_costs_more_tokens_than_before(make_careful: Make, count_tokens: Callable[[str], int]) -> None:
    small = [
        "ok",
        "ok",
        "line one\nline two",
        "line one\nline two",
        "a b c d e f g h\n" * 2,
        "a b c d e f g h\n" * 3,
        OTHER,
    ]
    compaction = make_careful(min_tokens=0).compact(agent(*small, OTHER, SOURCE, SOURCE, TABLE, TABLE))
    given = [*small, OTHER, SOURCE, SOURCE, TABLE, TABLE]
    for before, after in zip(given, emitted(compaction), strict=True):
        assert after == before or count_tokens(after) < count_tokens(before)
    assert emitted(compaction)[:4] == small[:4]
    assert compaction.report.reasons["not_shorter"] >= 1
    assert all(cut.removed_tokens > cut.stub_tokens for cut in compaction.decisions)


def test_f71_no_listing_costs_more_tokens_than_before(make_careful: Make, count_tokens: Callable[[str], int]) -> None:
    folders = ("/a/", "responsibilities/", FOLDER, "https://pilot.example/charts/of/the/inner/harbour/")
    names = {many: [f"{letter}{many}" for letter in "abcdefgh"[:many]] for many in (1, 2, 4, 8)}
    files = [listing(*of, folder=folder) for folder in folders for of in names.values()]
    compaction = make_careful(min_tokens=0, directory_aliases=True).compact(agent(*files, files[-1]))
    for before, after in zip([*files, files[-1]], emitted(compaction), strict=True):
        assert after == before or count_tokens(after) < count_tokens(before)
    assert {cut.layer for cut in compaction.decisions} >= {"l0", "alias"}
