"""Whether windows of different requests should share a batch: 16 requests of one or two windows, in batches of 8.

Each request is a tool result of another recorded run. *own*: one request after the other, so that each batch holds
windows of one. *shared*: all at once through the queue as it is shipped. Both force batches of 8, in the precision of
the pass that was chosen here, with one thread, and remember nothing; *chosen* is that pass itself, all at once. The
ways take turns; time is process CPU time. Prints a table, and the figures as one line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from time import process_time
from typing import Any

from corpus_data import corpus_runs, machine, observed
from pooled import encode_at_once, pool_of, tokens_of
from programs import parser_of
from stored import markdown

from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.encoders.measured import measured_pass
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.windows import fixed_windows

REQUESTS, MOST_WINDOWS, BATCH = 16, 2, 8
ROUNDS = 5


def requests(encoder: BatchEncoder) -> list[list[str]]:
    """The windows of the last tool result that has few enough, of runs spread over the corpus."""
    found = [windows for run in corpus_runs() if (windows := _last_small(observed(run.messages), encoder))]
    return found[:: len(found) // REQUESTS][:REQUESTS]


def _last_small(texts: Sequence[str], encoder: BatchEncoder) -> list[str]:
    for text in reversed(texts):
        windows = fixed_windows(text, encoder.token_offsets, encoder.window_tokens)
        if 1 <= len(windows) <= MOST_WINDOWS:
            return [text[window.start : window.end] for window in windows]
    return []


def one_by_one(pool: EncoderPool, asked: Sequence[Sequence[str]], salt: str) -> None:
    for number, windows in enumerate(asked):
        encode_at_once(pool, [windows], f"{salt} {number}")


def measure(rounds: int) -> dict[str, Any]:
    """Tokens per second of each way, and shared batches over own ones, median over the rounds."""
    encoder = load_encoder("minilm")
    fast, asked = measured_pass(encoder), requests(encoder)
    forced = next(way for way in encoder.passes() if (way.precision, way.batch) == (fast.way.precision, BATCH))
    tokens = tokens_of(encoder, [window for windows in asked for window in windows])
    seconds: dict[str, list[float]] = {"own": [], "shared": [], "chosen": []}
    with pool_of(encoder, replace(fast, way=forced), 1) as batched, pool_of(encoder, fast, 1) as chosen:
        for number in range(rounds):
            for name, pool, encode in (
                ("own", batched, one_by_one),
                ("shared", batched, encode_at_once),
                ("chosen", chosen, encode_at_once),
            ):
                seconds[name].append(_seconds(lambda e=encode, p=pool, n=name: e(p, asked, f"{n} {number}")))  # type: ignore[misc]  # noqa: B023 - called at once
    return {
        "shared_batches_over_own": round(median(map(float.__truediv__, seconds["own"], seconds["shared"])), 3),
        "shared_batches": {
            "requests": len(asked),
            "windows": sum(map(len, asked)),
            "tokens": tokens,
            "batches_of_8": forced.label,
            "chosen": fast.way.label,
            "tokens_per_second": {name: round(tokens / median(found)) for name, found in seconds.items()},
        },
    }


def _seconds(work: Callable[[], None]) -> float:
    began = process_time()
    work()
    return process_time() - began


def table(figures: dict[str, Any]) -> str:
    line = figures["shared_batches"]
    ways = {
        "own": f"{line['batches_of_8']}, each request's own",
        "shared": f"{line['batches_of_8']}, shared",
        "chosen": f"{line['chosen']}: chosen here",
    }
    rates = line["tokens_per_second"]
    return markdown(
        ("batches", "tok/s", "over own"),
        ((text, f"{rates[name]:,}", f"{rates[name] / rates['own']:.2f}") for name, text in ways.items()),
    )


def main() -> None:
    asked = parser_of(__doc__).parse_args()
    figures = measure(1 if asked.quick else ROUNDS)
    line = figures["shared_batches"]
    print(f"{machine()}; {line['requests']} requests, {line['windows']} windows, {line['tokens']:,} tokens; 1 thread")
    print(table(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
