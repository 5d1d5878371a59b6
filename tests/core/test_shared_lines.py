"""Which stretch of earlier text is proposed for a window."""

from __future__ import annotations

from lam_vllm.memory import ConversationMemory
from lam_vllm.near_duplicates import RetainedWindows
from lam_vllm.shared_lines import find_stretch


def shown(*texts: str) -> ConversationMemory:
    """A memory in which each text was printed whole; `~` stands for a stub."""
    memory = ConversationMemory(RetainedWindows(1))
    for result, text in enumerate(texts, start=1):
        memory.open_section(result, 1, "line")
        for line in text.split():
            if line == "~":
                memory.lines.hole()
            else:
                memory.lines.keep(memory.lines.intern([line])[0], 0)
        memory.lines.hole()
    return memory


def stretch(
    memory: ConversationMemory, window: str, tokens: int = 5, before: int | None = None
) -> tuple[int, int, int] | None:
    """Result, first line and number of lines of the stretch for a window of lines that cost the same."""
    lines = window.split()
    keys = [memory.lines.table.get(line, 10_000 + place) for place, line in enumerate(lines)]
    place = find_stretch(memory, len(memory.lines) if before is None else before, keys, [tokens] * len(lines))
    return None if place is None else (place.result, place.first, place.lines)


def test_the_text_that_shares_most_lines_is_proposed() -> None:
    memory = shown("a b x", "q a b c d", "a")
    assert stretch(memory, "a b new c d") == (2, 2, 4)


def test_the_first_of_equal_texts_is_proposed() -> None:
    assert stretch(shown("a b", "z"), "a b") == (1, 1, 2)


def test_a_stretch_reaches_over_lines_that_differ_but_not_over_a_stub() -> None:
    assert stretch(shown("a b other c d"), "a b c d") == (1, 1, 5)
    assert stretch(shown("a b c ~ d"), "a b c d") == (1, 1, 3)


def test_lines_that_say_nothing_are_no_reason() -> None:
    assert stretch(shown("} } }"), "} } }", tokens=1) is None
    assert stretch(shown("a b"), "c d") is None


def test_what_is_printed_later_is_not_proposed() -> None:
    memory = shown("x", "a b c")
    assert stretch(memory, "a b c", before=memory.sections[1].start) is None


def test_a_text_that_counts_parts_is_not_proposed() -> None:
    memory = shown("a b c")
    memory.sections[0] = memory.sections[0]._replace(unit="part")
    assert stretch(memory, "a b c") is None
