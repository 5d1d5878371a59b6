"""What each profile removes from the recorded runs, what stays readable, and what it costs, per source.

Tokens are the served model's, counted over the texts as they were and as they are emitted, so that stubs are paid for.
Every run is compacted at once, with nothing remembered from another. On each, prefixes of a quarter, a half and three
quarters of its messages are compacted from nothing and compared with the whole; under `exact` the original messages are
put together again from the compacted ones alone and compared. Either failing ends the program.

Every finished run becomes a row of results/removal.jsonl. Prints a table, and the same figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from time import process_time
from typing import Any

from corpus_data import SOURCES, corpus_runs, machine, served_tokens
from remembered import RememberedEncoder
from removal_rows import RESULTS, RemovalRow
from removal_table import PROFILES, print_table, table

from lam_vllm import Compaction, Compactor, CompactorConfig, reconstruct
from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measure import code_digest
from lam_vllm.evaluation.rows import RowStore, digest, keep_latest, read_rows
from lam_vllm.evaluation.score import TokenCounter, observation_texts, score

CHECKED_PREFIXES = (0.25, 0.5, 0.75)
MODELS = "tokens of SmolLM2; all-MiniLM-L6-v2, t = 0.95"


class Watched:
    """A profile as a method whose last compaction can be looked at."""

    setting, seed, verbatim = "", 0, True

    def __init__(self, profile: str, count_tokens: TokenCounter, encoder: RememberedEncoder | None) -> None:
        self.name = profile
        self.compactor = Compactor(CompactorConfig.model_validate({"profile": profile}), count_tokens, encoder)
        self.encoder = encoder
        self.compaction = self.compactor.compact([])

    def shorten(self, run: Run) -> list[Any]:
        self.compaction = self.compactor.compact(run.messages, use_memo=False)
        return self.compaction.messages


def measure(run: Run, method: Watched, count_tokens: TokenCounter) -> RemovalRow:
    encoder = method.encoder
    encoding = encoder.encode_seconds if encoder else 0.0
    row = score(method, run, count_tokens, encoder.cpu_seconds if encoder else process_time)
    encode_seconds = encoder.encode_seconds - encoding if encoder else 0.0
    compaction = method.compaction
    report = compaction.report
    return RemovalRow(
        **asdict(row),
        setup=f"{machine()}; {MODELS}",
        longer=_longer(run, compaction, count_tokens),
        stubs=sum(bool(decision.stub) for decision in compaction.decisions),
        stub_tokens=report.stub_tokens,
        l0_tokens=report.removed_tokens["l0"],
        l1_tokens=report.removed_tokens["l1"],
        delta_hat=round(report.delta_hat, 6),
        boundary_pairs=report.boundary_pairs,
        reconstructed=_check_round_trip(run, compaction) if method.name == "exact" else None,
        prefixes_checked=_check_prefixes(run, method.compactor, compaction),
        windows=report.work.new_windows,
        encoder_calls=report.work.encoder_calls,
        encode_ms=round(1e3 * encode_seconds, 1),
    )


def _longer(run: Run, compaction: Compaction, count_tokens: TokenCounter) -> int:
    pairs = zip(observation_texts(run.messages), observation_texts(compaction.messages), strict=True)
    return sum(count_tokens(now) > count_tokens(then) for then, now in pairs if now != then)


def _check_prefixes(run: Run, compactor: Compactor, compaction: Compaction) -> int:
    lengths = sorted({int(share * len(run.messages)) for share in CHECKED_PREFIXES} - {0})
    for length in lengths:
        prefix = compactor.compact(run.messages[:length], use_memo=False).messages
        if prefix != compaction.messages[:length]:
            sys.exit(f"{run.id}: the first {length} messages come out differently without the rest")
    return len(lengths)


def _check_round_trip(run: Run, compaction: Compaction) -> bool:
    if reconstruct(compaction.messages) != list(run.messages):
        sys.exit(f"{run.id}: the compacted messages do not give back the original ones")
    return True


def measure_all(profiles: list[str], runs: list[Run], *, resume: bool) -> None:
    """Appends a row for every run under every profile; with `resume`, only for those that this code has not made."""
    count_tokens = served_tokens()
    store = RowStore(RESULTS, digest(code_digest(), machine(), MODELS), RemovalRow)
    for profile in profiles:
        encoder = None if profile == "exact" else RememberedEncoder(load_encoder("minilm"))
        method = Watched(profile, count_tokens, encoder)
        for number, run in enumerate(runs, start=1):
            stamp = store.stamp(run)
            if not (resume and store.get(method, stamp)):
                store.add(measure(run, method, count_tokens), stamp)
            print(f"\r{profile}: {number} of {len(runs)} runs", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    keep_latest(RESULTS, RemovalRow)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--profile", choices=PROFILES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--source", choices=SOURCES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--limit", type=int, help="of each source only the first runs")
    parser.add_argument("--resume", action="store_true", help="keep rows that this code has already made")
    parser.add_argument("--show", action="store_true", help="measure nothing, print what the file holds")
    asked = parser.parse_args()
    profiles, sources = asked.profile or list(PROFILES), asked.source or list(SOURCES)
    runs = corpus_runs(sources, asked.limit)
    if not asked.show:
        measure_all(profiles, runs, resume=asked.resume)
    asked_for = {(profile, run.id) for profile in profiles for run in runs}
    wanted = [row for row in read_rows(RESULTS, RemovalRow) if (row.method, row.run) in asked_for]
    lines, setups = table(wanted), sorted({row.setup for row in wanted})
    print(*setups, sep="\n")
    print_table(lines)
    print(json.dumps({"setup": setups, "table": lines}))


if __name__ == "__main__":
    main()
