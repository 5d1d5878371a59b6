"""How long admission keeps a turn of a recorded run waiting, its new windows not yet encoded, and warmed.

A turn is a request of the run that brings a tool result: the messages up to each answer, and up to the end. Each goes
through a `Compactor` over an `EncoderPool` as shipped, the history known from the turn before. *cold*: nobody saw the
new text. *warm*: `Compactor.warm` of the same messages was done before, which is not timed. Milliseconds of wall clock.
Of each source the first runs, until they have `--tokens` tokens of tool output. Prints a table, and the figures as one
line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from time import perf_counter
from typing import Any, Literal

import numpy as np
from corpus_data import SOURCES, corpus_runs, machine, observed, served_tokens
from pooled import pool_of, tokens_of
from programs import parser_of
from stored import markdown

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.encoders.measured import measured_pass
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Message

PAPER = {"per_turn_ms_mean": 18.1, "per_turn_ms_p99": 115.0, "encoder_tokens_per_second": 71_708}
"""Its encoder runs on a GB10."""
PROFILES: tuple[Literal["paper", "guarded"], ...] = ("paper", "guarded")
TOKENS = 20_000


@dataclass(frozen=True, slots=True)
class Admitted:
    """One turn: milliseconds, and of the cold one its windows, encoder calls and canonical calls."""

    cold_ms: float
    warm_ms: float
    windows: int
    encoder_calls: int
    canonical_calls: int


def first_runs(source: str, encoder: BatchEncoder, tokens: int) -> list[Run]:
    taken, found = 0, []
    for run in corpus_runs([source]):
        if taken >= tokens:
            break
        taken += tokens_of(encoder, observed(run.messages))
        found.append(run)
    return found


def turns(run: Run) -> Iterator[Sequence[Message]]:
    """The messages of each request that brings a tool result which the one before did not have."""
    answers = [index for index, message in enumerate(run.messages) if message["role"] == "assistant" and index]
    for before, end in pairwise([0, *answers, len(run.messages)]):
        if observed(run.messages[before:end]):
            yield run.messages[:end]


def loaded_tokens() -> Callable[[str], int]:
    count = served_tokens()
    count("its file is read now")
    return count


def admit(run: Run, profile: Literal["paper", "guarded"], pool: EncoderPool) -> list[Admitted]:
    """Every turn of the run, once cold and once warmed, each with a compactor and a salt of its own."""
    cold, warm = (Compactor(CompactorConfig(profile=profile), loaded_tokens(), pool) for _ in range(2))
    admitted = []
    for messages in turns(run):
        began = perf_counter()
        work = cold.compact(messages, salt=f"cold {profile} {run.id}").report.work
        cold_ms = 1e3 * (perf_counter() - began)
        warm.warm(messages, salt=f"warm {profile} {run.id}")
        began = perf_counter()
        left = warm.compact(messages, salt=f"warm {profile} {run.id}").report.work
        warm_ms = 1e3 * (perf_counter() - began)
        assert not left.encoder_calls and not left.canonical_calls, "warming was to leave nothing to encode"
        admitted.append(Admitted(cold_ms, warm_ms, work.new_windows, work.encoder_calls, work.canonical_calls))
    return admitted


def summary(admitted: Sequence[Admitted], tokens: int) -> dict[str, Any]:
    columns = {field.name: np.array([getattr(turn, field.name) for turn in admitted]) for field in fields(Admitted)}
    means = {f"{name}_per_turn": columns[name].mean() for name in ("windows", "encoder_calls", "canonical_calls")}
    figures = {
        "tokens_per_turn": tokens / len(admitted),
        **means,
        "per_turn_ms_mean": columns["cold_ms"].mean(),
        "per_turn_ms_p99": np.percentile(columns["cold_ms"], 99),
        "per_turn_warm_ms_mean": columns["warm_ms"].mean(),
        "per_turn_warm_ms_p99": np.percentile(columns["warm_ms"], 99),
    }
    most = int(columns["encoder_calls"].max())
    return {
        "turns": len(admitted),
        "most_encoder_calls": most,
        **{name: round(float(figure), 3) for name, figure in figures.items()},
    }


def measure(sources: Sequence[str], tokens: int, threads: int) -> dict[str, Any]:
    """Figures by profile and source; those at the top are of the profile `paper`, over all sources."""
    encoder = load_encoder("minilm")
    fast = measured_pass(encoder)
    runs = {source: first_runs(source, encoder, tokens) for source in sources}
    runs["all"] = [run for found in runs.values() for run in found]
    read = {source: sum(tokens_of(encoder, observed(run.messages)) for run in found) for source, found in runs.items()}
    by_profile: dict[str, dict[str, Any]] = {}
    with pool_of(encoder, fast, threads) as pool:
        for profile in PROFILES:
            admitted = {source: [t for run in runs[source] for t in admit(run, profile, pool)] for source in sources}
            admitted["all"] = [turn for found in admitted.values() for turn in found]
            by_profile[profile] = {source: summary(found, read[source]) for source, found in admitted.items()}
    top = by_profile["paper"]["all"]
    return {
        **{name: top[name] for name in top if name.startswith("per_turn_")},
        "encoder_calls_per_turn": top["encoder_calls_per_turn"],
        "turn_latency": {
            "pass": fast.way.label,
            "encoder_tokens_per_second": round(fast.tokens_per_second[fast.way.label]),
            "threads": threads,
            "paper": PAPER,
            "profiles": by_profile,
        },
    }


def table(figures: dict[str, Any]) -> str:
    latency = figures["turn_latency"]
    rows = [
        (
            f"{profile}, {source}",
            f"{line['turns']:,}",
            f"{line['tokens_per_turn']:,.0f}",
            *(f"{line[f'{name}_per_turn']:.2f}" for name in ("windows", "encoder_calls")),
            str(line["most_encoder_calls"]),
            f"{line['canonical_calls_per_turn']:.2f}",
            *(f"{line[f'per_turn_{name}']:.1f}" for name in ("ms_mean", "ms_p99", "warm_ms_mean", "warm_ms_p99")),
        )
        for profile, by_source in latency["profiles"].items()
        for source, line in by_source.items()
    ]
    paper = latency["paper"]
    rows.append(("the paper", *"------", str(paper["per_turn_ms_mean"]), f"{paper['per_turn_ms_p99']:.0f}", *"--"))
    calls = ("windows", "encoder calls", "most", "canonical")
    return markdown(("profile, source", "turns", "tokens", *calls, "cold ms", "p99", "warm ms", "p99"), rows)


def encoder_rates(figures: dict[str, Any]) -> str:
    """The sentence under the table."""
    latency = figures["turn_latency"]
    ours, paper = latency["encoder_tokens_per_second"], latency["paper"]["encoder_tokens_per_second"]
    return f"Encoder: {ours:,} tokens per second a thread here ({latency['pass']}), {paper:,} in the paper (GB10)."


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--source", choices=SOURCES, action="append", help="only this source (may be repeated)")
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"tool output of each source (default: {TOKENS:,})")
    asked = parser.parse_args()
    figures = measure(asked.source or SOURCES, 1 if asked.quick else asked.tokens, asked.threads)
    print(f"{machine()}; encoder threads: {asked.threads}\n{table(figures)}\n{encoder_rates(figures)}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
