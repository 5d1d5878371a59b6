"""CPU time of the compactor: new text, counting its tokens, finding a known prefix, a late turn, and the idle hook.

All of that is process CPU time, median of five. Counting tokens is kept apart by a dictionary: a first pass fills it
with every count that a compaction asks for, and the timed passes only look them up. (Subtracting the time of each call
would put two clock readings, which cost more than most lines do, into every one of them.) What counting costs is the
difference to passes that ask a freshly loaded tokenizer instead.

What encoding costs is measured by programs of their own, in wall-clock time, which this one starts one after the other.

Prints a table, and the figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from unittest.mock import patch

from corpus_data import SOURCES, corpus_runs, machine, observed, served_tokens
from disabled_hook import disabled_hook_us
from long_run import EARLY, LATE, Turn, measure_turns
from programs import figures_of
from remembered import RememberedEncoder

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.corpus import Run

REPEATS = 5
ENCODING = ("two_pass_speed", "shared_batches", "bge_base", "turn_latency")
PARTS = ("exact", "late_turn", "hook", *ENCODING)
EXACT = CompactorConfig(profile="exact")
TokenCounter = Callable[[str], int]


class KnownCounts(dict[str, int]):
    """Token counts by text, each made once."""

    def __init__(self, count: TokenCounter) -> None:
        self._count = count

    def __missing__(self, text: str) -> int:
        self[text] = tokens = self._count(text)
        return tokens


def cpu_seconds(work: Callable[[], object]) -> float:
    """Process CPU time of one call, garbage of earlier ones collected."""
    gc.collect()
    began = process_time()
    work()
    return process_time() - began


def compact_all(runs: Iterable[Run], count_tokens: TokenCounter) -> None:
    """Every run at once, nothing known: splitting, planning, decisions, rendering and the digests of the messages."""
    for run in runs:
        Compactor(EXACT, count_tokens).compact(run.messages)


def recognise_seconds(runs: Iterable[Run], count_tokens: TokenCounter) -> float:
    """CPU time of finding the known prefix when the last message of every run arrives, its history known."""
    total = 0.0
    for run in runs:
        compactor = Compactor(EXACT, count_tokens)
        compactor.compact(run.messages[:-1])
        with patch("lam_vllm.compactor.perf_counter", process_time):  # its stage times are then CPU time
            report = compactor.compact(run.messages).report
        assert report.work.known_messages == len(run.messages) - 1, "the memo was to be warm"
        total += report.seconds["recognise"]
    return total


def measure(runs: list[Run], counts: KnownCounts) -> dict[str, float]:
    """Token figures of these runs and CPU milliseconds per 10,000 of them."""
    new_tokens = sum(counts[text] for run in runs for text in observed(run.messages))
    history_tokens = sum(counts[message["content"]] for run in runs for message in run.messages[:-1])
    compact_all(runs, counts.__getitem__)
    exact = median(cpu_seconds(lambda: compact_all(runs, counts.__getitem__)) for _ in range(REPEATS))
    fresh = (served_tokens() for _ in range(REPEATS))
    counting = median(cpu_seconds(lambda: compact_all(runs, count)) for count in fresh)  # noqa: B023 - called at once
    recognise = median(recognise_seconds(runs, counts.__getitem__) for _ in range(REPEATS))
    return {
        "new_tokens": new_tokens,
        "history_tokens": history_tokens,
        "exact_cpu_ms_per_10k_tokens": 1e7 * exact / new_tokens,
        "token_count_ms_per_10k_tokens": 1e7 * (counting - exact) / new_tokens,
        "recognise_ms_per_10k_tokens": 1e7 * recognise / history_tokens,
    }


def measure_late_turn(counts: KnownCounts) -> dict[str, object]:
    """Turn 100 over turn 10, for `exact` and, with the packaged encoder, for `guarded`."""
    encoder = RememberedEncoder(load_encoder("minilm"))
    work: list[float] = []
    figures: dict[str, object] = {}
    print(f"\n{'turn':<14} {'lines':>7} {'windows':>8} {'encoder calls':>14} {'CPU ms':>8} {'without recognition':>20}")
    for profile in ("exact", "guarded"):
        early, late = measure_turns(profile, counts.__getitem__, encoder if profile == "guarded" else None)
        ratios = late.over(early)
        work += [ratios["lines"], ratios["windows"], ratios["encoder_calls"]]
        print_turn(f"{profile} {EARLY}", early)
        print_turn(f"{profile} {LATE}", late)
        if profile == "exact":
            figures["turn100_over_turn10_cpu"] = round(ratios["new_cpu_seconds"], 3)
            figures["turn100_over_turn10_cpu_with_recognition"] = round(ratios["cpu_seconds"], 3)
        figures[f"{profile}_turns"] = {"turn10": asdict(early), "turn100": asdict(late)}
    return {"turn100_over_turn10": round(max(work), 3), **figures}


def print_turn(label: str, turn: Turn) -> None:
    milliseconds = f"{1e3 * turn.cpu_seconds:>8.2f} {1e3 * turn.new_cpu_seconds:>20.2f}"
    print(f"{label:<14} {turn.lines:>7} {turn.windows:>8} {turn.encoder_calls:>14} {milliseconds}")


def measure_exact(sources: list[str], counts: KnownCounts) -> dict[str, object]:
    """The figures of `measure` over all of these sources, and under `sources` for each."""
    print("CPU milliseconds per 10,000 tokens (exact, counting: of tool output; recognise: of all messages)")
    print(f"{'source':<22} {'tool output':>12} {'history':>10} {'exact':>7} {'counting':>9} {'recognise':>10}")
    by_source = {}
    for label in [*sources, "all"]:
        figures = measure(corpus_runs(sources if label == "all" else [label]), counts)
        new, history, exact, counting, recognise = figures.values()
        print(f"{label:<22} {new:>12,} {history:>10,} {exact:>7.2f} {counting:>9.2f} {recognise:>10.3f}")
        by_source[label] = {name: round(figure, 3) for name, figure in figures.items()}
    return {**by_source.pop("all"), "sources": by_source}


def measure_hook() -> dict[str, object]:
    hook = round(disabled_hook_us(), 2)
    print(f"\nhook, plugin loaded and not enabled: {hook} microseconds (median)")
    return {"disabled_hook_us_median": hook}


def parts(sources: list[str], quick: bool, cache: str) -> dict[str, Callable[[], dict[str, object]]]:
    """What can be measured, by name, in the order in which it is; the encoder's fast pass is kept in `cache`."""
    counts = KnownCounts(served_tokens())
    options = ["--quick"] if quick else []
    return {
        "exact": lambda: measure_exact(sources, counts),
        "late_turn": lambda: measure_late_turn(counts),
        "hook": measure_hook,
        **{name: partial(figures_of, name, *options, XDG_CACHE_HOME=cache) for name in ENCODING},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--source", choices=SOURCES, action="append", help="of `exact` only this one (may be repeated)")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="small samples of encoding: that it works, no more")
    asked = parser.parse_args()
    print(machine())
    figures: dict[str, object] = {"machine": machine()}
    with TemporaryDirectory() as cache:  # so that the fast pass is measured now, and once
        for name, measure_part in parts(asked.source or list(SOURCES), asked.quick, cache).items():
            if not asked.only or name in asked.only:
                figures |= measure_part()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
