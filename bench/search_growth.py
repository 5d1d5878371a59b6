"""How long searches take among 10^2 to 3x10^6 windows, and where that is as long as encoding the window takes.

No recorded conversation has that many. The first windows are retained ones of the recorded runs, all runs together;
each later one is a random retained one moved by half the difference of two others, and scaled to unit length: spread
as the real ones are, and hardly ever within the radius of one another. Queries are recorded windows, every second one
of which was dropped for a window that is among the first hundred. Times are CPU times of proposing and verifying,
on one thread, the median of five.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from search_grid import Embedded
from threadpoolctl import threadpool_limits

from lam_vllm.bound import delta_of
from lam_vllm.encoders import Encoder
from lam_vllm.search import BandedSearch, ExhaustiveSearch, PrunedSearch, Search, verify
from lam_vllm.types import Embedding, Match

SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)
T = 0.95
QUERIES = 40
REPEATS = 5
LOOKS = 4_000_000
"""Windows that the queries of a timed round look at, at most, but at least those of four queries."""
SEED = 8
_CHUNK = 50_000


def pool_and_queries(runs: Sequence[Embedded], size: int) -> tuple[Embedding, Embedding]:
    """(`size`, D) windows and (`QUERIES`, D) queries; every second query has its representative among the first."""
    retained, with_match, alone = _sorted_out(runs)
    rng = np.random.default_rng(SEED)
    chosen = rng.permutation(len(with_match))[: min(QUERIES // 2, len(alone))]
    queries = np.stack(
        [row for place, like_none in zip(chosen, alone, strict=False) for row in (with_match[place][0], like_none)]
    )
    first = list(dict.fromkeys(with_match[place][1] for place in chosen))
    others = [place for place in rng.permutation(len(retained)).tolist() if place not in set(first)]
    real = retained[first + others]
    rows = np.empty((size, retained.shape[1]), np.float32)
    rows[: len(real)] = real[:size]
    for start in range(len(real), size, _CHUNK):
        stop = min(size, start + _CHUNK)
        base, one, two = rng.integers(0, len(real), (3, stop - start))
        moved = real[base] + 0.5 * (real[one] - real[two])
        rows[start:stop] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return rows, queries


def _sorted_out(runs: Sequence[Embedded]) -> tuple[Embedding, list[tuple[Embedding, int]], list[Embedding]]:
    """Retained rows; dropped rows of another text with their representative's place; rows like nothing retained.

    The last ones, every eighth that would have been retained, are left out of the first.
    """
    kept: list[Embedding] = []
    dropped: list[tuple[Embedding, int]] = []
    alone: list[Embedding] = []
    texts: set[str] = set()
    for run in runs:
        first = len(kept)
        for place, (text, row) in enumerate(zip(run.texts, run.rows, strict=True)):
            if text in texts:
                continue
            texts.add(text)
            before = np.array(kept[first:], np.float32).reshape(-1, len(row))
            near = np.flatnonzero(before @ row >= T)
            if len(near):
                dropped.append((row, first + int(near[0])))
            else:
                (alone if place % 8 == 7 else kept).append(row)
    return np.array(kept), dropped, alone


def growth(runs: Sequence[Embedded], basis: Any, encoder: Encoder, most: int) -> dict[str, Any]:
    """Times by size and search, what each looked at and found, and where it takes as long as encoding a window."""
    sizes = [size for size in SIZES if size <= min(most, _room(runs[0].rows.shape[1]))]
    rows, queries = pool_and_queries(runs, sizes[-1])
    dimension = rows.shape[1]
    makers: dict[str, Callable[[], Search]] = {
        "exhaustive": ExhaustiveSearch,
        "banded": lambda: BandedSearch(dimension),
        "pruned": lambda: PrunedSearch(basis),
    }
    with threadpool_limits(1):
        encoding = encode_seconds(encoder, runs)
        lines = [
            {"windows": size, "search": name, **timed(make(), rows[:size], queries)}
            for size in sizes
            for name, make in makers.items()
        ]
    exact = {line["windows"]: line["found"] for line in lines if line["search"] == "exhaustive"}
    for line in lines:
        line["drops"] = exact[line["windows"]]
    equal = {name: equals([line for line in lines if line["search"] == name], encoding) for name in makers}
    return {"encode_seconds": encoding, "sizes": lines, "equals_encoding": equal, "largest": sizes[-1]}


def timed(search: Search, rows: Embedding, queries: Embedding) -> dict[str, Any]:
    """CPU seconds of a query (of some of them) and of deriving a row; pairs looked at, and queries with a match."""
    eligible = np.ones(len(rows), np.bool_)
    began = process_time()
    search.propose(rows, eligible, queries[0], T)
    derived = process_time() - began
    asked = queries[: min(len(queries), max(4, LOOKS // len(rows)))]
    seconds = []
    for _ in range(REPEATS):
        began = process_time()
        for query in asked:
            _match(search, rows, eligible, query)
        seconds.append((process_time() - began) / len(asked))
    looked_at = sum(_examined(search, rows, eligible, query) for query in queries)
    found = sum(_match(search, rows, eligible, query) is not None for query in queries)
    once = median(seconds)
    return {
        "seconds": once,
        "derive_seconds_a_row": max(0.0, derived - once) / len(rows),
        "bytes_a_row": search.nbytes / len(rows),
        "examined": looked_at / (len(queries) * len(rows)),
        "queries": len(queries),
        "found": found,
    }


def _match(search: Search, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding) -> Match | None:
    return verify(search.propose(rows, eligible, query, T), rows, query, delta_of(T)).match


def _examined(search: Search, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding) -> int:
    if isinstance(search, BandedSearch):
        return int(search.agreeing(rows, query).sum())
    return len(search.left(rows, eligible, query, T)) if isinstance(search, PrunedSearch) else len(rows)


def encode_seconds(encoder: Encoder, runs: Sequence[Embedded]) -> float:
    """CPU seconds of the canonical embedding of a full window: the median of five windows, each the median of five."""
    texts = [text for run in runs for text in run.texts if len(encoder.token_offsets(text)) == encoder.window_tokens]
    windows = []
    for text in texts[:: max(1, len(texts) // 5)][:5]:
        seconds = []
        for _ in range(REPEATS):
            began = process_time()
            encoder.encode(text)
            seconds.append(process_time() - began)
        windows.append(median(seconds))
    return median(windows)


def equals(lines: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Among how many windows a query takes `seconds`: between two sizes, or by the last one's time a window."""
    for before, after in pairwise(lines):
        if before["seconds"] <= seconds < after["seconds"]:
            share = (seconds - before["seconds"]) / (after["seconds"] - before["seconds"])
            return {
                "windows": round(before["windows"] + share * (after["windows"] - before["windows"])),
                "measured": True,
            }
    last = lines[-1]
    return {"windows": round(last["windows"] * seconds / last["seconds"]), "measured": False}


def _room(dimension: int) -> float:
    """How many windows fit into three quarters of the memory that can be had, with the most that a search keeps."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    assert found is not None
    return 0.75 * 1024 * int(found[1]) / (4 * dimension + 2 * dimension + 16)
