"""What an inspection says of a run: spans that tile, targets as the prompt shows them, totals of the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.inspection.page import render_page
from lam_vllm.evaluation.inspection.view import Block, Cut, Inspection, inspect_run
from tests.page.runs import (
    LIKE,
    LISTING,
    NEW,
    NUMBERED,
    OTHER_PRICES,
    PRICES,
    SCRIPT,
    SHIFTED,
    WORDS,
    chat,
    exact,
    inspect_guarded,
    inspect_paper,
)


def by_words(text: str) -> int:
    return len(text.split())


def texts(inspection: Inspection) -> list[str]:
    """The text of every text block, put together from its spans."""
    blocks = [block for turn in inspection.turns for entry in turn.entries for block in entry.blocks]
    return [whole(block) for block in blocks if block.kind == "text"]


def whole(block: Block) -> str:
    return "".join(span.original if isinstance(span, Cut) else span for span in block.spans)


def test_each_cut_is_shown_with_what_its_stub_names(encoder: Encoder, count_tokens: Callable[[str], int]) -> None:
    like, alias, shifted = inspect_guarded(encoder, count_tokens).cuts
    assert like.decision.stub.startswith("[like lines 1-2")
    assert (like.original, like.representative) == ("".join(LIKE), "".join(SCRIPT))
    assert like.kept.removesuffix("\n") == "".join(NEW).removesuffix("\n")
    assert (alias.original, alias.decision.stub) == ("", "[@1/ is /workspace/project/source/library/ below]")
    assert (shifted.original, shifted.representative) == ("".join(SHIFTED), "".join(NUMBERED))


def test_lines_of_a_listing_with_short_names_are_read_written_out() -> None:
    again = "".join(LISTING[2:9])
    inspection = inspect_run(chat("".join(LISTING), again), exact(directory_aliases=True), len)
    alias, repeat = inspection.cuts
    assert alias.decision.layer == "alias" and repeat.decision.target_lines == (4, 10)
    assert repeat.representative == repeat.original == again


def test_a_repetition_is_compared_with_its_period_as_often_as_it_stands() -> None:
    text = "one two three four five six\n" * 9
    (cut,) = inspect_run(chat(text), exact(), len).cuts
    assert cut.decision.stub.startswith("[line above repeats 8 times]")
    assert cut.representative == cut.original == text[len(text) // 9 :]


def test_parts_of_a_long_line_are_found() -> None:
    items = [f'{{"id": {number}, "name": "the {word} beside the river"}}, ' for number, word in enumerate(WORDS * 6)]
    inspection = inspect_run(chat("".join(items), "new text first, " + "".join(items)), exact(), len)
    assert {cut.decision.unit for cut in inspection.cuts} == {"part"}
    assert all(cut.representative == cut.original for cut in inspection.cuts)


def test_windows_of_the_paper_are_cut_again(encoder: Encoder, count_tokens: Callable[[str], int]) -> None:
    inspection = inspect_paper(encoder, count_tokens)
    *windows, silent = inspection.cuts
    assert [(cut.decision.unit, cut.decision.target_lines) for cut in windows] == [
        ("window", (1, 1)),
        ("window", (2, 2)),
    ]
    assert "".join(cut.representative for cut in windows) == PRICES
    assert "".join(cut.original for cut in windows) == OTHER_PRICES
    near = float(encoder.encode(windows[1].original) @ encoder.encode(windows[1].representative))
    assert near == pytest.approx(1 - windows[1].distance ** 2 / 2, abs=1e-5)
    assert (silent.decision.stub, silent.original, silent.representative) == (
        "",
        "a line\nwith more\n",
        silent.original,
    )


def test_unshifted_repeats_of_recorded_runs_equal_what_they_name(
    six_runs: list[Run], count_tokens: Callable[[str], int]
) -> None:
    inspections = [inspect_run(run, exact(count_tokens, directory_aliases=True), count_tokens) for run in six_runs]
    repeats = [cut for one in inspections for cut in one.cuts if not cut.decision.shift]
    assert len(repeats) > 50
    assert [cut for cut in repeats if cut.representative != cut.original] == []


def test_turns_begin_with_the_assistant_and_add_up_to_the_report(
    six_runs: list[Run], count_tokens: Callable[[str], int]
) -> None:
    for run in six_runs:
        compactor = exact(count_tokens)
        inspection, report = inspect_run(run, compactor, count_tokens), compactor.compact(run.messages).report
        assert inspection.tokens.removed == sum(report.removed_tokens.values())
        assert inspection.tokens.stubs == report.stub_tokens and inspection.tokens.net == report.saved_tokens
        assert [cut.number for cut in inspection.cuts] == list(range(1, len(inspection.cuts) + 1))
        assert all(turn.entries[0].role == "assistant" for turn in inspection.turns if turn.number)
        assert sum(len(turn.entries) for turn in inspection.turns) == len(run.messages)


def test_odd_messages_are_shown_as_far_as_they_can_be() -> None:
    call = {"id": "c1", "function": {"name": "bash", "arguments": {"command": "ls"}}}
    nameless = {"function": {"name": "no id", "arguments": ""}}
    parts = [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "text", "text": "seen"}, "bare", 7]
    messages = (
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call, nameless, 7]},
        {"role": "tool", "tool_call_id": "c1", "content": parts},
        {"role": "tool", "content": 7},
        {"role": "tool"},
    )
    (turn,) = inspect_run(Run("odd", "test", messages), exact(by_words), by_words).turns
    shown = [[(block.kind, block.label, whole(block)) for block in entry.blocks] for entry in turn.entries]
    assert shown[0] == [("reasoning", "", "hm"), ("call", "bash", '{"command": "ls"}'), ("call", "no id", "")]
    assert shown[1] == [("other", "image_url", ""), ("text", "", "seen"), ("text", "", "bare"), ("other", "int", "")]
    assert shown[2:] == [[("other", "int", "")], []]
    assert [(entry.name, entry.result) for entry in turn.entries] == [("", None), ("bash", 1), ("", 2), ("", 3)]


def lines_cost_much(text: str) -> int:
    """Tokens by which every run of two lines pays for its stub."""
    return 20 * text.count("\n")


lines = st.sampled_from(
    ["the same line again\n", "1: numbered\n", "2: numbered\n", "\n", "x", "\r\n", "\ud800\0\u2028\n"]
)
observations = st.lists(st.lists(lines, max_size=12).map("".join), max_size=5)


@given(observations, st.sampled_from(["exact", "aliased"]))
@settings(max_examples=150, deadline=None)
def test_spans_tile_every_text(results: list[str], kind: str) -> None:
    run = chat(*results)
    compactor = exact(lines_cost_much, directory_aliases=kind == "aliased", min_tokens=4)
    inspection = inspect_run(run, compactor, lines_cost_much)
    expected = [message["content"] for message in run.messages if message["content"] or message["role"] == "tool"]
    assert [text for text in texts(inspection) if text] == [text for text in expected if text]


class _Elements(HTMLParser):
    """Names of the elements that begin, and the text of the data element."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.data = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        if self.names[-1:] == ["script"] and not self.data:
            self.data = data


def parsed(page: str) -> _Elements:
    elements = _Elements()
    elements.feed(page)
    return elements


PLAIN = parsed(render_page(inspect_run(chat("plain"), exact(by_words), by_words))).names


marks = st.sampled_from([" ", "<", ">", "/", "script", "!--", "&", '"', "'", "\\", "$", "\0", "\u2028", "\ud83d"])


@given(st.lists(marks).map("".join))
@settings(max_examples=150, deadline=None)
def test_no_text_changes_the_elements_of_the_page_and_every_text_comes_back(text: str) -> None:
    page = render_page(inspect_run(chat(text, "<!--<script>" + text), exact(by_words), by_words))
    elements = parsed(page)
    assert elements.names == PLAIN and page.isascii()
    entries = [entry for turn in json.loads(elements.data)["turns"] for entry in turn["entries"]]
    shown = ["".join(block["spans"]) for entry in entries if entry["result"] for block in entry["blocks"]]
    assert [one for one in shown if one] == [one for one in (text, "<!--<script>" + text) if one]
