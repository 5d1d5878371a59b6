"""The serving figures as tables: ours in the layout of the paper's table 9, the paper's rows below."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from corpus_data import ROOT
from stored import markdown

PAPER = ROOT / "tests" / "data" / "paper_tables.json"
HEADINGS = (
    "compactor threads",
    "output tok/s",
    "TTFT p50 ms",
    "TTFT p90 ms",
    "TPOT p50 ms",
    "compactor tok/s",
    "of solo",
    "hook over TTFT",
    "failed",
    "late",
    "restarts",
)


def serving_table(figures: dict[str, Any]) -> str:
    """One run of bench/serving.py, with the paper's rows."""
    paper = json.loads(PAPER.read_text(encoding="utf-8"))["table9_serving_5_req_s"]
    return markdown(HEADINGS, [*_ours(figures["arms"]), *_theirs(paper)])


def serving_setups(runs: list[dict[str, Any]]) -> str:
    """Every arm with a compactor of several runs, by where its cores were and how many API servers shared the calls."""
    return markdown(
        (
            "placement, API servers, compactor threads",
            "TTFT p50 ms",
            "compactor tok/s",
            "of solo",
            "hook p50 ms",
            "hook over TTFT",
            "warmed in time",
            "windows needed",
            "encoded",
        ),
        (
            (
                f"{run['placement']['name']}, {_servers(run)}, {_threads(arm)}",
                _cell(arm, "ttft_p50_ms", ",.1f"),
                _cell(arm, "compactor_tok_s", ",.0f"),
                _cell(arm, "vs_solo", ".3f"),
                _cell(arm, "hook_p50_ms", ".1f"),
                _cell(arm, "hook_share_of_ttft", ".1%"),
                f"{arm['warmed_in_time']} of {arm['turns']}" if arm["warm"] else "-",
                str(arm["windows_needed"]),
                str(arm["windows"].get("fast", 0)),
            )
            for run in runs
            for arm in run["arms"]
            if arm["threads"]
        ),
    )


def _servers(run: dict[str, Any]) -> str:
    return f"{run['api_servers']}{', new connections' * run['reconnect']}"


def _threads(arm: dict[str, Any]) -> str:
    return f"{arm['threads']}{', warm' * arm['warm']}"


def _ours(arms: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for arm in arms:
        counts = (str(arm[name]) for name in ("failed", "late", "worker_restarts"))
        yield _threads(arm), *_common(arm), _cell(arm, "hook_share_of_ttft", ".1%"), *counts


def _theirs(rows: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        yield f"paper: {row['threads']}", *_common(row), *("-" for _ in HEADINGS[-4:])


def _common(row: dict[str, Any]) -> tuple[str, ...]:
    """The columns that the paper has; one that it lacks is a dash."""
    return (
        _cell(row, "out_tok_s", ".1f"),
        _cell(row, "ttft_p50_ms", ",.1f"),
        _cell(row, "ttft_p90_ms", ",.1f"),
        _cell(row, "tpot_p50_ms", ".2f"),
        _cell(row, "compactor_tok_s", ",.0f"),
        _cell(row, "vs_solo", ".3f"),
    )


def _cell(row: dict[str, Any], name: str, form: str) -> str:
    value = row.get(name)
    return "-" if value is None else format(value, form)
