"""What each profile removes from the recorded runs, what stays readable, and what it costs, per source.

Tokens are the served model's, counted over the texts as they were and as they are emitted, so that stubs are paid for.
Every run is compacted at once, with nothing remembered from another. On each, prefixes of a quarter, a half and three
quarters of its messages are compacted from nothing and compared with the whole; under `exact` the original messages are
put together again from the compacted ones alone and compared. Either failing ends the program.

Every finished run becomes a row of results/removal.json. Prints a table, and the same figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

from corpus_data import SOURCES, corpus_runs, machine, observed, served_tokens
from remembered import RememberedEncoder
from removal_rows import Row, Rows, code_digest, read_rows, stored_setup, write_rows
from removal_table import PROFILES, print_table, table

from lam_vllm import Compaction, Compactor, CompactorConfig, reconstruct
from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import distinct_lines, gold_lines

CHECKED_PREFIXES = (0.25, 0.5, 0.75)
TokenCounter = Callable[[str], int]


def measure(run: Run, profile: str, count_tokens: TokenCounter, encoder: RememberedEncoder | None, code: str) -> Row:
    """The row of one run, made by the source that `code` names."""
    compactor = Compactor(CompactorConfig.model_validate({"profile": profile}), count_tokens, encoder)
    spent, encoding = _encoder_seconds(encoder)
    began = process_time()
    compaction = compactor.compact(run.messages, use_memo=False)
    seconds = process_time() - began
    still_spent, still_encoding = _encoder_seconds(encoder)
    encode_seconds = still_encoding - encoding
    return Row(
        profile=profile,
        source=run.source,
        run=run.id,
        code=code,
        prefixes_checked=_check_prefixes(run, compactor, compaction),
        reconstructed=_check_round_trip(run, compaction) if profile == "exact" else None,
        cpu_ms=round(1e3 * (seconds - (still_spent - spent) + encode_seconds), 1),
        encode_ms=round(1e3 * encode_seconds, 1),
        **_sizes(run, compaction, count_tokens),
        **_evidence(run, compaction),
    )


def _encoder_seconds(encoder: RememberedEncoder | None) -> tuple[float, float]:
    return (encoder.spent_seconds, encoder.encode_seconds) if encoder else (0.0, 0.0)


def _sizes(run: Run, compaction: Compaction, count_tokens: TokenCounter) -> dict[str, Any]:
    before = [count_tokens(text) for text in observed(run.messages)]
    after = [count_tokens(text) for text in observed(compaction.messages)]
    report = compaction.report
    return {
        "observations": len(before),
        "observation_tokens": sum(before),
        "emitted_tokens": sum(after),
        "longer": sum(now > then for then, now in zip(before, after, strict=True)),
        "stubs": sum(bool(decision.stub) for decision in compaction.decisions),
        "stub_tokens": report.stub_tokens,
        "l0_tokens": report.removed_tokens["l0"],
        "l1_tokens": report.removed_tokens["l1"],
        "delta_hat": round(report.delta_hat, 6),
        "boundary_pairs": report.boundary_pairs,
        "windows": report.work.new_windows,
        "encoder_calls": report.work.encoder_calls,
    }


def _evidence(run: Run, compaction: Compaction) -> dict[str, int]:
    gold = gold_lines(run.messages, compaction.messages, run.gold_patch or "")
    lines = distinct_lines(run.messages, compaction.messages)
    return {
        "gold_witnessed": gold.witnessed,
        "gold_kept": gold.kept,
        "gold_relaxed": gold.relaxed,
        "distinct_lines": lines.distinct,
        "readable_lines": lines.readable,
        "long_line_words": lines.long_distinct,
        "readable_words": lines.long_readable,
    }


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


def measure_all(profiles: list[str], runs: list[Run], rows: Rows, setup: str, resume: bool) -> None:
    """Adds a row for every run under every profile, writing the file after each; with `resume`, only missing ones."""
    count_tokens, code = served_tokens(), code_digest()
    for profile in profiles:
        left = [run for run in runs if not (resume and (row := rows.get((profile, run.id))) and row.code == code)]
        encoder = RememberedEncoder(load_encoder("minilm")) if left and profile != "exact" else None
        for number, run in enumerate(left, start=1):
            rows[profile, run.id] = measure(run, profile, count_tokens, encoder, code)
            write_rows(rows, setup)
            print(f"\r{profile}: {number} of {len(left)} runs", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--profile", choices=PROFILES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--source", choices=SOURCES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--limit", type=int, help="of each source only the first runs")
    parser.add_argument("--resume", action="store_true", help="keep rows that this code has already made")
    parser.add_argument("--show", action="store_true", help="measure nothing, print what the file holds")
    asked = parser.parse_args()
    profiles, sources = asked.profile or list(PROFILES), asked.source or list(SOURCES)
    setup = stored_setup() if asked.show else f"{machine()}; tokens of SmolLM2; all-MiniLM-L6-v2, t = 0.95"
    runs, rows = corpus_runs(sources, asked.limit), read_rows(setup)
    if not asked.show:
        measure_all(profiles, runs, rows, setup, asked.resume)
    print(setup)
    asked_for = {(profile, run.id) for profile in profiles for run in runs}
    wanted = [row for key, row in rows.items() if key in asked_for]
    lines = table(wanted)
    print_table(lines)
    print(json.dumps({"setup": setup, "code": sorted({row.code for row in wanted}), "table": lines}))


if __name__ == "__main__":
    main()
