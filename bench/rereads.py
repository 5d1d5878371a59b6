"""Read, edit, read: what the second read of every changed region in the recorded runs still shows of the change.

A pair is two tool results of one run of which the later shows, changed, a region that the earlier shows
(lam_vllm.evaluation.rereads). Counted over all pairs, over those with an editing command between them, and over those
of which the agent itself wrote a changed line in between. `exact` and `guarded` must hide nothing: the program ends
with an error where a changed line can neither be read in the second read nor in lines that it names, where a line that
is new to the prompt does not stand in it, where a stub is untrue, or where `reconstruct` does not give back a run.
Embeddings come from the file of remembered.py. Prints a table for each kind of pair, and the same figures as one
line of JSON, which results/rereads.json keeps.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from corpus_data import SOURCES, corpus_runs, machine, served_tokens
from remembered import RememberedEncoder
from stored import measured_or_stored

from lam_vllm import Compactor, make_config, reconstruct
from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.rereads import Reread, find_rereads
from lam_vllm.evaluation.second_reads import SecondReads, second_reads

METHODS = ("exact", "exact+alias", "guarded", "guarded+alias", "paper")
KINDS: dict[str, Callable[[Reread], bool]] = {
    "any": lambda _: True,
    "by_command": lambda reread: reread.by_command,
    "by_content": lambda reread: reread.by_content,
}
TITLES = {
    "any": "Any action of the assistant between the reads",
    "by_command": "A command that may edit between the reads",
    "by_content": "The assistant wrote a changed line between the reads",
}
Counts = dict[tuple[str, str, str], SecondReads]
"""By kind of pair, source and method."""


def makers() -> dict[str, Callable[[], Compactor]]:
    """What makes a fresh compactor of each method, which remembers no run but the one that it is given."""
    encoder = RememberedEncoder(load_encoder("minilm"))
    count_tokens = served_tokens()

    def maker(method: str) -> Callable[[], Compactor]:
        profile, _, alias = method.partition("+")
        config = make_config({"profile": profile, "directory_aliases": bool(alias)})
        return lambda: Compactor(config, count_tokens, None if profile == "exact" else encoder)

    return {method: maker(method) for method in METHODS}


def measure(sources: Sequence[str], limit: int | None) -> dict[str, Any]:
    counts = counted(sources, limit)
    order = [(kind, source, method) for kind in KINDS for source in (*SOURCES, "all") for method in METHODS]
    lines = [
        {"kind": kind, "source": source, "method": method, **asdict(counts[kind, source, method])}
        for kind, source, method in order
        if (kind, source, method) in counts
    ]
    return {"setup": machine(), "counts": lines}


def counted(sources: Sequence[str], limit: int | None) -> Counts:
    counts: defaultdict[tuple[str, str, str], SecondReads] = defaultdict(SecondReads)
    made = makers()
    for run in corpus_runs(sources, limit):
        rereads = find_rereads(run.messages)
        for method, make in made.items():
            for reread, found in checked(run, make(), rereads, method):
                for kind in (kind for kind, belongs in KINDS.items() if belongs(reread)):
                    for source in (run.source, "all"):
                        counts[kind, source, method] += found
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return dict(counts)


def checked(
    run: Run, compactor: Compactor, rereads: Sequence[Reread], method: str
) -> Iterator[tuple[Reread, SecondReads]]:
    """Each reread and what becomes of it; the promises are kept for each by itself, or its place is named."""
    for reread, found in zip(rereads, second_reads(run, compactor, rereads), strict=True):
        if method != "paper" and (found.hidden or found.untrue or found.new_shown < found.new):
            sys.exit(f"{method}: {run.id}, message {reread.later} after {reread.earlier}: {found}")
        yield reread, found
    if method.startswith("exact") and reconstruct(compactor.compact(run.messages).messages) != list(run.messages):
        sys.exit(f"{method}: {run.id}: reconstruct does not give back the run")


def print_tables(figures: Sequence[dict[str, Any]]) -> None:
    names = [field.name for field in fields(SecondReads)]
    for kind, title in TITLES.items():
        headings = " | ".join(name.replace("_", " ") for name in names)
        print(f"\n{title}\n\n| source | method | {headings} |\n|---|---|{'---:|' * len(names)}")
        for line in figures:
            if line["kind"] == kind and (kind == "any" or line["source"] == "all"):
                print(f"| {line['source']} | {line['method']} | {' | '.join(f'{line[name]:,}' for name in names)} |")


def main() -> None:
    figures = measured_or_stored(__doc__, "rereads", measure)
    print(figures["setup"])
    print_tables(figures["counts"])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
