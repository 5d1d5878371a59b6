"""The windows of an index nearest to a query, and how far off their scores may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lam_vllm.encoders.base import Encoder
from lam_vllm.index.nouns import Dropped, Found, Hit
from lam_vllm.index.prefix_index import PrefixIndex
from lam_vllm.index.segments import SEGMENT_ROWS
from lam_vllm.memory import SeenWindow
from lam_vllm.types import Embedding, Message
from lam_vllm.windows import fixed_windows


def search(
    index: PrefixIndex, encoder: Encoder, query: str, k: int, messages: Sequence[Message] | None = None
) -> Found:
    """The `k` nearest windows to the text; of a long one, or an empty one, the first window counts.

    With the `messages` of the prefix, hits have their text.

    Raises:
        EncoderError: the encoder failed.
    """
    first = next(iter(fixed_windows(query, encoder.token_offsets, encoder.window_tokens)), None)
    embedding = encoder.encode(query[: first.end] if first is not None else query)
    hits = nearest(index, embedding, k)
    if messages is not None:
        hits = tuple(replace(hit, text=_text_of(hit, messages)) for hit in hits)
    return Found(hits, len(index.windows), index.missing, index.digest, encoder.name, index.eps, index.uncovered)


def nearest(index: PrefixIndex, query: Embedding, k: int) -> tuple[Hit, ...]:
    """The `k` windows whose decoded rows have the largest cosine with the (D,) query; equal ones as they arrived."""
    wide = query.astype(np.float64)
    unit = wide / np.sqrt(np.square(wide).sum())
    scores = _scores(index, unit)
    best = np.argsort(-scores, kind="stable")[:k]
    chosen = {int(row): float(scores[row]) for row in best if scores[row] > -np.inf}
    own, dropped = _windows_of(index.windows, chosen)
    rounding = len(unit) * 2.0**-52  # of two float64 sums of D products of unit vectors, in any order
    return tuple(
        Hit(
            score,
            *own[row][:5],
            max((each.distance for each in dropped[row]), default=0.0),
            _codec_error(index, row),
            index.embedding_error,
            rounding,
            tuple(dropped[row]),
        )
        for row, score in chosen.items()
    )


def _scores(index: PrefixIndex, unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) the score of every row, -inf where it is not kept.

    Products are summed row by row, in one order, so that equal rows have equal scores wherever they stand.
    """
    rows = sum(window.distance is None for window in index.windows)
    scores = np.full(rows, -np.inf)
    for place, segment in enumerate(index.segments):
        if segment is not None:
            start = place * SEGMENT_ROWS
            scores[start : start + len(segment.rows)] = (segment.rows.astype(np.float64) * unit).sum(axis=1)
    return scores


def _windows_of(
    windows: Iterable[SeenWindow], rows: Iterable[int]
) -> tuple[dict[int, SeenWindow], dict[int, list[Dropped]]]:
    """For each of the rows the window that it is, and those that it stands for besides."""
    dropped: dict[int, list[Dropped]] = {row: [] for row in rows}
    own = {}
    for window in windows:
        if window.row not in dropped:
            continue
        if window.distance is None:
            own[window.row] = window
        else:
            dropped[window.row].append(Dropped(*window[:5], window.distance))
    return own, dropped


def _codec_error(index: PrefixIndex, row: int) -> float:
    segment = index.segments[row // SEGMENT_ROWS]
    assert segment is not None, "only rows that are kept have a score"
    return float(segment.errors[row % SEGMENT_ROWS])


def _text_of(hit: Hit, messages: Sequence[Message]) -> str:
    content = messages[hit.message]["content"]
    text: str = content if hit.part is None else content[hit.part]["text"]
    return text[hit.start : hit.end]
