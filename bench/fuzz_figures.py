"""What came of fuzzed requests, as figures and as a table."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, replace
from typing import Any, TypeAlias

from corpus_data import ROOT
from stored import markdown

sys.path.append(str(ROOT))  # the requests are those of the tests

from tests.server.books import Books
from tests.server.fuzz_judge import Verdict

MEMO_BYTES, STORE_BYTES = 1_000_000, 50_000
"""Caps of the servers: the smallest memo that there is, and a store that does not hold all that is removed."""
MEMOS = 3
"""Memos, each under its cap: of prefixes in the server and in its worker, and of embeddings there."""
CLASSES = ("2xx", "4xx", "5xx", "none")
Figures: TypeAlias = dict[str, Any]


def figures_of(verdict: Verdict, before: Books, after: Books) -> Figures:
    """What one server answered, and whether it is the one that it was."""
    return {
        "answers": _statuses(verdict),
        "reached_engine": verdict.generated,
        "connections_lost": verdict.connections_lost,
        "errors_of_vllm_alone": dict(verdict.of_vllm.most_common()),
        "findings": Counter(f"{finding.answer.request.path} {finding.why}" for finding in verdict.findings),
        "after": asdict(after),
        "nothing_else_changed": _without_bytes(before) == _without_bytes(after),
        "within_caps": after.memo_bytes <= MEMOS * MEMO_BYTES and after.store_bytes <= STORE_BYTES,
    }


def holds(figures: Figures) -> bool:
    """Whether the plugin has nothing to answer for."""
    return not figures["findings"] and figures["nothing_else_changed"] and figures["within_caps"]


def table(parts: dict[str, Figures]) -> str:
    """Answers of every server by route and class of status."""
    rows = [
        (f"{name}: {path}", *(f"{row[each]:,}" for each in CLASSES))
        for name, figures in parts.items()
        for path, row in figures["answers"].items()
    ]
    every = [row for figures in parts.values() for row in figures["answers"].values()]
    total = [f"{sum(row[each] for row in every):,}" for each in CLASSES]
    return markdown(("route", "2xx", "4xx", "5xx", "no answer"), [*rows, ("all", *total)])


def _without_bytes(books: Books) -> Books:
    """Processes and counts of failures: what is held may change."""
    return replace(books, memo_bytes=0, store_bytes=0)


def _statuses(verdict: Verdict) -> dict[str, dict[str, int]]:
    counted: dict[str, dict[str, int]] = {}
    for (path, status), number in sorted(verdict.statuses.items()):
        row = counted.setdefault(path, dict.fromkeys(CLASSES, 0))
        row[f"{status // 100}xx" if status else "none"] += number
    return counted
