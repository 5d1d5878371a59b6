"""The results of removal.py by profile and source, as figures and as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from corpus_data import SOURCES
from removal_rows import RemovalRow

PROFILES = ("exact", "guarded", "paper")
COLUMNS = {
    "runs": ("runs", ","),
    "observation_tokens": ("tokens", ","),
    "removed_net_percent": ("removed, net %", ".2f"),
    "stubs": ("stubs", ","),
    "mean_stub_tokens": ("tokens each", ".1f"),
    "gold_kept": ("gold lines kept", ","),
    "gold_witnessed": ("of", ","),
    "readable_lines": ("lines readable", ","),
    "distinct_lines": ("of", ","),
    "delta_hat": ("delta_hat", ".3f"),
    "windows": ("windows", ","),
    "encoder_calls": ("encoded", ","),
    "cpu_ms_per_1k_tokens": ("ms per 1K", ".2f"),
    "encode_ms_per_1k_tokens": ("of it encoding", ".2f"),
}
"""Heading and format of each figure that the table shows; the line of JSON holds all of them."""


def table(rows: list[RemovalRow]) -> list[dict[str, Any]]:
    """Figures by profile and source, and of all sources together."""
    lines = []
    for profile in PROFILES:
        of_profile = [row for row in rows if row.method == profile]
        for source in [*SOURCES, "all"] if of_profile else []:
            chosen = [row for row in of_profile if source in (row.source, "all")]
            if chosen:
                lines.append({"profile": profile, "source": source, **summed(chosen)})
    return lines


def print_table(lines: list[dict[str, Any]]) -> None:
    headings = " | ".join(heading for heading, _ in COLUMNS.values())
    print(f"| profile | source | {headings} |\n|---|---{'|---:' * len(COLUMNS)}|")
    for line in lines:
        figures = " | ".join(format(line[key], form) for key, (_, form) in COLUMNS.items())
        print(f"| {line['profile']} | {line['source']} | {figures} |")


def summed(rows: Iterable[RemovalRow]) -> dict[str, float]:
    """Counts of these rows together, and the rates that follow from them (percent; per stub; per 1,000 tokens)."""
    rows = list(rows)

    def total(count: Callable[[RemovalRow], float]) -> float:
        return sum(map(count, rows))

    tokens, stubs = total(lambda row: row.observation_tokens), total(lambda row: row.stubs)
    return {
        "runs": len(rows),
        "observation_tokens": tokens,
        "removed_net_percent": round(100 * (1 - total(lambda row: row.emitted_tokens) / tokens), 2),
        "longer": total(lambda row: row.longer),
        "stubs": stubs,
        "mean_stub_tokens": round(total(lambda row: row.stub_tokens) / max(1, stubs), 1),
        "gold_witnessed": total(lambda row: row.gold_witnessed),
        "gold_kept": total(lambda row: row.gold_kept or 0),
        "gold_relaxed": total(lambda row: row.gold_relaxed or 0),
        "distinct_lines": total(lambda row: row.distinct_lines),
        "readable_lines": total(lambda row: row.readable_lines or 0),
        "long_words": total(lambda row: row.long_words),
        "readable_words": total(lambda row: row.readable_words or 0),
        "delta_hat": round(max(row.delta_hat for row in rows), 4),
        "boundary_pairs": total(lambda row: row.boundary_pairs),
        "reconstructed": sum(row.reconstructed is True for row in rows),
        "prefixes_checked": total(lambda row: row.prefixes_checked),
        "windows": total(lambda row: row.windows),
        "encoder_calls": total(lambda row: row.encoder_calls),
        "cpu_ms_per_1k_tokens": round(1e3 * total(lambda row: row.cpu_ms) / tokens, 2),
        "encode_ms_per_1k_tokens": round(1e3 * total(lambda row: row.encode_ms) / tokens, 2),
    }
