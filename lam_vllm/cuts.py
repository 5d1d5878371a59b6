"""Cuts in one observation: what is taken out, the stub that stands for it, and the text that remains."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from lam_vllm.lines import Unit, join_pieces
from lam_vllm.prices import Prices
from lam_vllm.stubs import Stub
from lam_vllm.types import Decision, Layer, Observation


class Cut(NamedTuple):
    """Pieces `start:stop` gave way to `stub`, printed as `text`, followed by those of them that are `kept`."""

    start: int
    stop: int
    stub: Stub
    text: str
    target_result: int
    target_lines: tuple[int, int] | None
    target_unit: Unit = "line"
    layer: Layer = "l0"
    shift: int = 0
    distance: float = 0.0
    kept: tuple[int, ...] = ()
    removed_tokens: int = 0


def render(pieces: list[str], unit: Unit, cuts: list[Cut]) -> str:
    """The text with every cut replaced by its stub, each on a line of its own.

    Between parts, which are not lines, the newline on either side of a stub belongs to the stub (where there is text).
    """
    blocks: list[str] = []
    last = 0
    for cut in cuts:
        if cut.start > last:
            blocks.append(_block(pieces[last : cut.start], unit, final=False))
        blocks.append(cut.text)
        if cut.kept:
            blocks.append(_block([pieces[place] for place in cut.kept], unit, final=False))
        last = cut.stop
    if last < len(pieces):
        blocks.append(_block(pieces[last:], unit, final=True))
    return "\n".join(blocks)


def decide(observation: Observation, pieces: list[str], cuts: list[Cut], prices: Prices) -> tuple[Decision, ...]:
    """The record of each cut, with its span in the original text and its price."""
    offsets = [0, *accumulate(map(len, pieces))]
    return tuple(
        Decision(
            observation.message,
            observation.part,
            observation.result,
            cut.layer,
            offsets[cut.start],
            min(offsets[cut.stop], len(observation.text)),
            cut.text,
            cut.target_result,
            cut.target_lines,
            cut.target_unit,
            cut.shift,
            cut.removed_tokens,
            prices.stub(cut.text),
        )
        for cut in cuts
    )


def _block(pieces: list[str], unit: Unit, *, final: bool) -> str:
    """Kept pieces between stubs. A part that ends its line keeps that newline, besides the stub's own."""
    return join_pieces(pieces) if unit == "line" or final else "".join(pieces)
