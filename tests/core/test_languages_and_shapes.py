"""Languages and shapes of tool output: nothing is lost, torn or renumbered, whatever the text looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm import Compactor, make_config, prefix_breaks, reconstruct
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import distinct_lines
from lam_vllm.evaluation.inspection.view import inspect_run
from lam_vllm.evaluation.second_reads import tells_the_truth
from lam_vllm.lines import cut_text
from lam_vllm.types import Embedding, Message
from tests.core.chats import BagOfWords
from tests.core.shapes import EDITS, SHAPES, changed, edited

Edit = Callable[[Sequence[str], int], list[str]]
Counter = Callable[[str], int]
DOCUMENTS = [text for texts in SHAPES.values() for text in texts]
IDS = [f"{shape} {number}" for shape, texts in SHAPES.items() for number, _ in enumerate(texts, 1)]


class Remembering(BagOfWords):
    """The real encoder; a text that several chats show is encoded once."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.window_tokens, self.threshold_cos, self.dimension = 510, encoder.threshold_cos, encoder.dimension
        self._offsets, self._encode = encoder.token_offsets, lru_cache(maxsize=None)(encoder.encode)

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return self._offsets(text)

    def encode(self, text: str) -> Embedding:
        return self._encode(text).copy()


@pytest.fixture(scope="module")
def minilm(encoder: Encoder) -> Encoder:
    return Remembering(encoder)


def made(
    profile: str, count_tokens: Counter = len, encoder: Encoder | None = None, *, alias: bool = False
) -> Compactor:
    return Compactor(make_config({"profile": profile, "directory_aliases": alias}), count_tokens, encoder)


def read(*results: str) -> list[Message]:
    """A chat in which a tool gave these results."""
    messages: list[Message] = [{"role": "user", "content": "Please look."}]
    for result in results:
        messages += [{"role": "assistant", "content": "I look."}, {"role": "tool", "content": result}]
    return messages


def read_and_edited(text: str, edit: Edit) -> list[Message]:
    """Read, edited, read twice, edited further down, read, put back, read."""
    once = edited(text, edit)
    return read(text, "Done.", once, once, edited(once, edit, 0.8), text)


def plain(text: str) -> str:
    return text


def numbered(text: str) -> str:
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(text.split("\n"), 1))


def check_careful(messages: Sequence[Message], compactor: Compactor) -> None:
    """No distinct line is lost, and every stub stands for the lines that it names."""
    compacted = compactor.compact(messages).messages
    lines = distinct_lines(messages, compacted)
    assert lines.lost == ()
    assert lines.long_readable == lines.long_distinct
    for cut in inspect_run(Run("run", "made", tuple(messages)), compactor, len).cuts:
        text = str(messages[cut.decision.message]["content"])
        assert cut.decision.layer == "alias" or tells_the_truth(cut, text), cut


@pytest.mark.parametrize("alias", [False, True])
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("view", [plain, numbered])
@pytest.mark.parametrize("text", DOCUMENTS, ids=IDS)
def test_exact_gives_back_every_byte(
    text: str, view: Callable[[str], str], edit: Edit, alias: bool, count_tokens: Counter
) -> None:
    messages = read_and_edited(view(text), edit)
    compaction = made("exact", count_tokens, alias=alias).compact(messages)
    assert reconstruct(compaction.messages) == messages
    first, last = (compaction.messages[place]["content"] for place in (2, -1))
    assert (
        last.startswith("[result 1 repeats]") if first == view(text) else count_tokens(last) < count_tokens(first) / 2
    )


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("view", [plain, numbered])
@pytest.mark.parametrize("text", DOCUMENTS, ids=IDS)
def test_guarded_keeps_every_distinct_line(
    text: str, view: Callable[[str], str], edit: Edit, count_tokens: Counter
) -> None:
    check_careful(read_and_edited(view(text), edit), made("guarded", count_tokens, BagOfWords()))


@pytest.mark.parametrize("shape", SHAPES)
def test_guarded_keeps_every_distinct_line_with_the_real_encoder(
    shape: str, count_tokens: Counter, minilm: Encoder
) -> None:
    texts = SHAPES[shape]
    messages = read(*texts, *(edited(text, changed) for text in texts), *texts)
    compactor = made("guarded", count_tokens, minilm)
    check_careful(messages, compactor)
    for text, message in zip(texts, compactor.compact(messages).messages[2 + 2 * len(texts) :: 2], strict=False):
        pieces, unit = cut_text(edited(text, changed))
        (piece,) = (piece.removesuffix("\n") for piece in pieces if "✎" in piece)
        shown = message["content"]
        assert piece in (shown if unit == "part" else shown.split("\n"))


@pytest.mark.parametrize("profile", ["exact", "guarded", "paper"])
@pytest.mark.parametrize("text", DOCUMENTS, ids=IDS)
def test_every_prefix_is_emitted_as_it_was(text: str, profile: str, count_tokens: Counter) -> None:
    messages = read_and_edited(text, changed)
    encoder = None if profile == "exact" else BagOfWords()
    assert prefix_breaks(lambda part: made(profile, count_tokens, encoder).compact(part), messages) == []


@st.composite
def mixtures(draw: st.DrawFn) -> list[Message]:
    """Results put together from documents of all shapes, numbered or not, as they were or edited, one after another."""
    results = []
    for _ in range(draw(st.integers(1, 5))):
        texts: list[str] = []
        for _ in range(draw(st.integers(1, 3))):
            text = draw(st.sampled_from(DOCUMENTS))
            for _ in range(draw(st.integers(0, 2))):
                text = edited(text, draw(st.sampled_from(EDITS)), draw(st.floats(0, 0.99)))
            texts.append(draw(st.sampled_from((plain, numbered)))(text))
        results.append(draw(st.sampled_from(("\n", "\r\n", "\n\n"))).join(texts))
    return read(*results, *draw(st.lists(st.sampled_from(results), max_size=2)))


def cost(text: str) -> int:
    """About as many tokens as a byte-level tokenizer makes of it, in no time."""
    return (len(text.encode()) + 3) // 4


@given(mixtures(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_mixtures_round_trip_in_exact(messages: list[Message], alias: bool) -> None:
    assert reconstruct(made("exact", cost, alias=alias).compact(messages).messages) == messages
    assert prefix_breaks(lambda part: made("exact", cost, alias=alias).compact(part), messages) == []


@given(mixtures(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_mixtures_keep_every_distinct_line_in_guarded(messages: list[Message], alias: bool) -> None:
    check_careful(messages, made("guarded", cost, BagOfWords(), alias=alias))
    assert prefix_breaks(lambda part: made("guarded", cost, BagOfWords(), alias=alias).compact(part), messages) == []
