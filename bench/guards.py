"""Near windows keep their difference: one token replaced at every position of real windows, the match forced.

Windows of the encoder's size are drawn from the recorded runs by a seed. At each token of each window the token is
replaced by another of its kind (a number by a number, "passed" by "failed", "is" by "is not", ...), and the window
and its copy are compacted by `guarded` as two tool results, with a stand-in for the encoder under which every window
is at distance 0 from every other. The changed line must stand verbatim in the second text as emitted (where long lines
are cut: its part), or, where only its line number changed, a stub must print by how much. The program ends with an
error at the first pair of which that is not so. Prints a table, and the same figures as one line of JSON, which
results/guards.json keeps.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from corpus_data import ROOT, corpus_runs, machine, served_tokens
from guard_pairs import Kind, Outcome, guarded_by_force, outcome, pairs, sample_windows

from lam_vllm.encoders import load_encoder

RESULTS = ROOT / "bench/results/guards.json"
SEED = 0
WINDOWS = 500


def measure(windows: Sequence[str]) -> dict[str, Any]:
    chosen = random.Random(SEED)
    counts: Counter[tuple[Kind, Outcome]] = Counter()
    shortened: Counter[Kind] = Counter()
    count_tokens = served_tokens()
    for window in windows:
        compactor = guarded_by_force(count_tokens)
        for pair in pairs(window, chosen):
            what, shorter = outcome(pair, compactor)
            if what == "lost":
                sys.exit(f"{pair.kind}: the line {pair.line!r} is lost from\n{pair.second}")
            counts[pair.kind, what] += 1
            shortened[pair.kind] += shorter
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    kinds = [
        {
            "kind": kind,
            "pairs": sum(count for (of, _), count in counts.items() if of == kind),
            "shortened": shortened[kind],
            **{what: counts[kind, what] for what in get_args(Outcome)},
        }
        for kind in get_args(Kind)
    ]
    return {"windows": len(windows), "pairs": counts.total(), "kinds": kinds}


def print_table(figures: dict[str, Any]) -> None:
    print(f"{figures['setup']}\n{figures['windows']} windows, {figures['pairs']:,} pairs, every match forced\n")
    headings = list(figures["kinds"][0])
    print(f"| {' | '.join(headings)} |\n|---|{'---:|' * (len(headings) - 1)}")
    for line in figures["kinds"]:
        print(f"| {line['kind']} | {' | '.join(f'{line[name]:,}' for name in headings[1:])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--windows", type=int, default=WINDOWS, help="how many windows (default: %(default)s)")
    parser.add_argument("--show", action="store_true", help="measure nothing, print what the file holds")
    asked = parser.parse_args()
    if asked.show:
        figures = json.loads(RESULTS.read_text(encoding="utf-8"))
    else:
        windows = sample_windows(corpus_runs(), load_encoder("minilm"), asked.windows, SEED)
        figures = {"setup": machine(), **measure(windows)}
        if asked.windows == WINDOWS:
            RESULTS.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    print_table(figures)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
