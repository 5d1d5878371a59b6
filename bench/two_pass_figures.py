"""What bench/two_pass.py finds: the ways it compares, its tables, and whether everything agrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Way:
    """One way to come to an answer. `group` is how many messages arrive at a time, 0 for all; `at_once` requests."""

    precision: str
    batch: int
    threads: int = 1
    at_once: int = 1
    group: int = 0


def print_tables(figures: dict[str, Any]) -> None:
    print(
        f"{figures['setup']}; {figures['runs']} runs; shipped: {figures['pass']}, band {figures['guard_band_cos']:.5f}"
    )
    names = [*Way.__slots__, "encoded", "differing", "digest"]
    print(f"| {' | '.join(names)} |\n|---|{'---:|' * (len(names) - 1)}")
    for line in figures["ways"]:
        print(f"| {' | '.join(str(line[name]) for name in names)} |")
    print(
        f"\n{figures['digests']} digest(s) in all; {figures['audited_runs']} runs audited: "
        f"{figures['audit_differences']} differences, "
        f"{100 * figures['canonical_share']:.2f}% of windows canonical again; "
        f"largest difference in cosine {figures['largest_difference_cos']:.5f} over {figures['windows']} windows, "
        f"{100 * figures['near_share']:.2f}% have a pair within the band of t\n"
        f"avx2: answers {'equal' if set(figures['avx2'].values()) == {figures['canonical_digest']} else 'differ'}"
    )


def agrees(figures: dict[str, Any]) -> bool:
    """Whether every way, the audit and the older CPU decide as canonical embeddings do."""
    older = set(figures["avx2"].values()) == {figures["canonical_digest"]}
    return figures["digests"] == 1 and figures["audit_differences"] == 0 and older
