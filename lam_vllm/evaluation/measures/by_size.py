"""Removal by the size of a run's tool output (the paper's figure 9b)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from lam_vllm.evaluation.measures.gold import Figure, net_removal
from lam_vllm.evaluation.rows import Row


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Runs with `least_tokens` <= tool output < `below_tokens`, and what is removed of their tokens together, net."""

    least_tokens: int
    below_tokens: int
    runs: int
    removal: Figure


def by_size(rows: Iterable[Row]) -> list[SizeBin]:
    """Bins between powers of two, by ascending size, those without a run left out; rows of one method at one setting.

    Runs without tool output are a bin of their own, 0 to 1.
    """
    bins: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        bins[row.observation_tokens.bit_length()].append(row)
    return [
        SizeBin(2 ** (bits - 1) if bits else 0, 2**bits, len(members), net_removal(members))
        for bits, members in sorted(bins.items())
    ]
