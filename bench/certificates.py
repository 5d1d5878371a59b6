"""Whether every certificate of a search holds, on every run of the corpus: recomputed in float64 from fp32 originals.

Each run is compacted under the profiles `paper`, which drops most, and `guarded`, and its index is built as the server
keeps it. Queries are sentences, windows of the run that follows, random directions, and the worst there are: the
direction in which a window differs most from the decoded row that stands for it. Each search gives its 100 best rows;
for every row, and for every window that it stands for, the score that the original embedding has is compared with what
the certificate allows. One that does not hold ends the program. `kept` is what a store is charged for the index, tables
included, and `ratio` what all windows would take in fp32 over that. `covered` is the share of the characters of tool
output that are in a window or were taken out of the prompt, gaps that are too short to be found counted in.

The corpus is embedded canonically. A server embeds by its fast pass: one source is done with the encoder as a server
opens it, and its certificates are compared with the scores of canonical originals too. Prints tables and one line of
JSON, which results/certificates.json keeps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from corpus_data import corpus_runs, machine, observed, served_tokens
from numpy.typing import NDArray
from remembered import RememberedEncoder
from stored import markdown, measured_or_stored

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.config import Profile
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import Encoder, traits_of
from lam_vllm.encoders.pool import open_pool
from lam_vllm.evaluation.corpus import Run
from lam_vllm.index import (
    Completer,
    EncodedAs,
    Hit,
    IndexShelf,
    PrefixIndex,
    PrefixWindows,
    build_index,
    index_eps,
    nearest,
)
from lam_vllm.stores.memory import MemoryRows
from lam_vllm.types import Embedding

K = 100
OTHERS, RANDOM = 20, 10
"""Queries of a run that are windows of the next one, and random directions."""
SENTENCES = (
    "the test that fails and why",
    "where is the function that parses the configuration",
    "an error message with a traceback",
    "the list of files in the repository",
    "what the customer booked and how they paid",
)
Direction: TypeAlias = NDArray[np.float64]
Place: TypeAlias = tuple[int, int | None, int, int]
Embed: TypeAlias = Callable[[str], Embedding]
FAST_SOURCE = "sweagent_demos"
PROFILES: tuple[Profile, ...] = ("paper", "guarded")


@dataclass(slots=True)
class Figures:
    """Sums over runs; `attained` is the largest share of a certificate that was used, `errors` a sum over hits."""

    runs: int = 0
    characters: int = 0
    covered: int = 0
    windows: int = 0
    retained: int = 0
    fp32_bytes: int = 0
    kept_bytes: int = 0
    searches: int = 0
    hits: int = 0
    compared: int = 0
    violations: int = 0
    attained: float = 0.0
    errors: float = 0.0
    largest_error: float = 0.0
    delta_hat: float = 0.0

    def plus(self, other: Figures) -> Figures:
        """Of two sets of runs together."""
        largest = ("attained", "largest_error", "delta_hat")
        pairs = ((each.name, getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return Figures(**{name: max(one, two) if name in largest else one + two for name, one, two in pairs})


def unit(vector: NDArray[Any]) -> Direction:
    wide = vector.astype(np.float64)
    return wide / np.linalg.norm(wide)


class Checked:
    """The index of a run, and the original embedding of every window in it."""

    def __init__(self, run: Run, prefix: PrefixWindows, index: PrefixIndex, embed: Embed) -> None:
        self.index = index
        texts = [run.messages[each.message]["content"][each.start : each.end] for each in prefix.windows]
        rows = [embed(text).astype(np.float64) for text in texts]
        places = [(each.message, each.part, each.start, each.end) for each in prefix.windows]
        self.originals: dict[Place, Direction] = dict(zip(places, rows, strict=True))
        decoded = [row.astype(np.float64) for segment in index.segments if segment for row in segment.rows]
        differences = [row - decoded[each.row] for row, each in zip(rows, prefix.windows, strict=True)]
        self.worst = [unit(difference) for difference in differences if difference.any()]
        characters = sum(map(len, observed(run.messages)))
        self.figures = Figures(1, characters, characters - prefix.uncovered, len(prefix.windows), len(prefix.rows))
        self.figures.fp32_bytes = len(prefix.windows) * prefix.rows.shape[1] * prefix.rows.itemsize
        self.figures.kept_bytes = kept_bytes(prefix, index.eps)

    def search(self, query: Direction) -> None:
        """One search, all of whose certificates are checked. The query is the unit vector that the search takes."""
        asked = query.astype(np.float32)
        direction = unit(asked)
        hits = nearest(self.index, asked, K)
        self.figures.searches += 1
        for hit in hits:
            self._check(hit, direction)

    def _check(self, hit: Hit, direction: Direction) -> None:
        found = self.figures
        found.hits += 1
        found.errors += hit.codec_error
        found.largest_error = max(found.largest_error, hit.codec_error)
        found.delta_hat = max(found.delta_hat, hit.delta_hat)
        own = (hit.message, hit.part, hit.start, hit.end)
        for place in (own, *((each.message, each.part, each.start, each.end) for each in hit.dropped)):
            apart = abs(float(self.originals[place] @ direction) - hit.score)
            found.compared += 1
            found.violations += apart > hit.total
            found.attained = max(found.attained, apart / hit.total)


def kept_bytes(prefix: PrefixWindows, eps: float) -> int:
    """What a store is charged for the index of the prefix."""
    rows = MemoryRows(10**9, 10**9)
    IndexShelf(rows, b"", EncodedAs("", prefix.rows.shape[1], eps), lambda _errors: None).put("", prefix)
    return rows.nbytes


def queries(checked: Checked, others: Embedding, sentences: Sequence[Direction], seed: int) -> Iterator[Direction]:
    yield from sentences
    yield from (unit(row) for row in others[:OTHERS])
    yield from map(unit, np.random.default_rng(seed).standard_normal((RANDOM, others.shape[1])))
    yield from checked.worst


def of_source(runs: Sequence[Run], compactor: Compactor, made: Encoder, originals: Encoder | None = None) -> Figures:
    """Figures of these runs, embedded by `made`; the originals are its own embeddings, or those of another."""
    sentences = [unit(made.encode(sentence)) for sentence in SENTENCES]
    eps = index_eps(traits_of(made).max_abs, made.dimension)
    prefixes: list[PrefixWindows] = []
    for run in runs:
        compactor.compact(run.messages, keep=prefixes.append)
    completer, total = Completer(made), Figures()
    prefixes = [completer.complete("", prefix) for prefix in prefixes]
    for place, (run, prefix) in enumerate(zip(runs, prefixes, strict=True)):
        checked = Checked(run, prefix, build_index(prefix, eps), (originals or made).encode)
        following = prefixes[(place + 1) % len(prefixes)].rows
        for query in queries(checked, following, sentences, place):
            checked.search(query)
        total = total.plus(checked.figures)
    return total


def of_profile(profile: Profile, sources: Sequence[str], limit: int | None, encoder: Encoder) -> dict[str, Figures]:
    compactor = Compactor(CompactorConfig(profile=profile), served_tokens(), encoder)
    found = {source: of_source(corpus_runs([source], limit), compactor, encoder) for source in sources}
    total = Figures()
    for figures in found.values():
        total = total.plus(figures)
    return found | {"all": total}


def as_served(limit: int | None, encoder: Encoder) -> tuple[dict[str, Any], Figures]:
    """One source under the fast pass of this machine, against canonical originals."""
    pool = open_pool("minilm", 1)
    compactor = Compactor(CompactorConfig(profile="paper"), served_tokens(), pool)
    figures = of_source(corpus_runs([FAST_SOURCE], limit), compactor, pool, encoder)
    way, error = pool.fast.way.label, pool.traits.embedding_error
    pool.close()
    return {"source": FAST_SOURCE, "way": way, "embedding_error": error, **asdict(figures)}, figures


def measure(sources: Sequence[str], limit: int | None) -> dict[str, Any]:
    encoder = RememberedEncoder(load_encoder("minilm"))
    profiles = {profile: of_profile(profile, sources, limit, encoder) for profile in PROFILES}
    fast, served = as_served(limit, encoder)
    every = [*(found["all"] for found in profiles.values()), served]
    violations = sum(figures.violations for figures in every)
    if violations:
        sys.exit(f"{violations} scores are further off than their certificate says")
    found = {profile: {name: asdict(each) for name, each in by.items()} for profile, by in profiles.items()}
    searches = sum(figures.searches for figures in every)
    return {"setup": machine(), "searches": searches, "violations": violations, "profiles": found, "fast": fast}


def table(sources: dict[str, dict[str, Any]]) -> str:
    """The table of bench/README.md, of figures by source."""
    counts = ("windows", "retained", "searches", "compared", "violations")
    headings = ("source", "runs", "covered %", "windows", "retained", "searches", "scores compared", "violations",
                "kept bytes", "ratio", "attained %", "codec error, mean", "max", "delta_hat")  # fmt: skip
    rows = [
        [
            source,
            f"{found['runs']}",
            f"{100 * found['covered'] / max(1, found['characters']):.1f}",
            *(f"{found[name]:,}" for name in counts),
            f"{found['kept_bytes']:,}",
            f"{found['fp32_bytes'] / max(1, found['kept_bytes']):.2f}",
            f"{100 * found['attained']:.1f}",
            f"{found['errors'] / max(1, found['hits']):.4f}",
            f"{found['largest_error']:.4f}",
            f"{found['delta_hat']:.4f}",
        ]
        for source, found in sources.items()
    ]
    return markdown(headings, rows)


def tables(figures: dict[str, Any]) -> str:
    """The tables of bench/README.md, each with a line about it."""
    fast = figures["fast"]
    way = f"`{fast['source']}` under `paper`, embedded by {fast['way']} (embedding error {fast['embedding_error']:.4f})"
    parts = [f"Profile `{profile}`:\n\n{table(sources)}" for profile, sources in figures["profiles"].items()]
    return "\n\n".join([*parts, f"{way}:\n\n{table({fast['source']: fast})}"])


def main() -> None:
    figures = measured_or_stored(__doc__, "certificates", measure)
    print(figures["setup"])
    print(tables(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
