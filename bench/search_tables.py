"""Tables of the searches, from the figures of search.py, for its output and for README.md."""

from __future__ import annotations

import json
from typing import Any

from corpus_data import ROOT
from stored import markdown, stored

PAPER = ROOT / "tests/data/paper_tables.json"
Figures = dict[str, Any]


def grid(figures: Figures | None = None) -> str:
    """Recall over all pairs of windows of a run by setting, beside the paper's table 26 at t = 0.99."""
    table = (figures or stored("search"))["all_pairs"]
    theirs = json.loads(PAPER.read_text(encoding="utf-8"))["table26_recall_at_t_099"]
    rows = []
    for line in table["grid"]:
        place = theirs["eps_over_sigma"].index(line["eps_over_sigma"])
        row = (f"r = {line['r']}, {line['eps_over_sigma']}", f"{theirs['r' + str(line['r'])][place]:.3f}")
        rows.append(
            (*row, *(f"{line[name]:.3f}" for name in ("recall_0.99", "recall_0.95")), f"{line['examined']:.2%}")
        )
    return markdown(("band, eps/sigma", "paper, t = .99", "t = .99", "t = .95", "pairs examined"), rows)


def drops(figures: Figures | None = None) -> str:
    """Of windows whose text no retained one has: how many are still dropped, and what was looked at for it."""
    lines = (figures or stored("search"))["drops"]
    rows = [
        (
            f"{line['t']:.2f}, {line['search']}",
            f"{line['asked']:,}",
            f"{line['dropped']:,}",
            _share(line["still_dropped"], line["dropped"], 2),
            _share(line["examined"], line["pairs"], 2),
        )
        for line in lines
    ]
    return markdown(("t, search", "arriving", "dropped by all pairs", "still dropped", "pairs examined"), rows)


def left_out(figures: Figures | None = None) -> str:
    """The pruned search by source, its basis made from the others."""
    lines = (figures or stored("search"))["left_out"]
    rows = [
        (
            line["source"],
            f"{line['pairs']:,}",
            _share(line["examined"], line["pairs"], 2),
            f"{line['dropped']:,}",
            f"{line['dropped'] - line['still_dropped']:,}",
        )
        for line in lines
    ]
    return markdown(("source left out", "pairs", "pairs examined", "dropped", "missed"), rows)


def growth(figures: Figures | None = None) -> str:
    """Microseconds of a query by size and search, what is looked at, and drops found."""
    found = (figures or stored("search"))["growth"]
    rows = []
    for size in dict.fromkeys(line["windows"] for line in found["sizes"]):
        by_name = {line["search"]: line for line in found["sizes"] if line["windows"] == size}
        cells = [_microseconds(by_name[name]["seconds"]) for name in ("exhaustive", "banded", "pruned")]
        cells += [f"{by_name[name]['examined']:.2%}" for name in ("banded", "pruned")]
        cells += [f"{by_name[name]['found']} of {by_name[name]['drops']}" for name in ("banded", "pruned")]
        rows.append((f"{size:,}", *cells))
    headings = (
        "windows",
        "exhaustive us",
        "banded us",
        "pruned us",
        "banded examines",
        "pruned",
        "banded finds",
        "pruned",
    )
    return markdown(headings, rows)


def equal(figures: Figures | None = None) -> str:
    """Among how many windows a query takes as long as encoding one, and what a search costs for each."""
    found = (figures or stored("search"))["growth"]
    rows = []
    for name, line in found["equals_encoding"].items():
        last = [each for each in found["sizes"] if each["search"] == name][-1]
        windows = f"{line['windows']:,}" + ("" if line["measured"] else " (beyond what was measured)")
        rows.append((name, windows, f"{last['bytes_a_row']:,.0f}", _microseconds(last["derive_seconds_a_row"])))
    rows.append(("the paper, all pairs", "1,200,000", "-", "-"))
    return markdown(("search", "equals encoding at", "bytes kept a window", "us to add one"), rows)


def _share(part: int, whole: int, digits: int) -> str:
    return f"{part / whole:.{digits}%}" if whole else "-"


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f}" if seconds < 1e-4 else f"{1e6 * seconds:,.0f}"
