"""Analyses of the user's own runs as tables: each run, the distribution with the zeros in it, and what stayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import quantiles
from typing import Any

from lam_vllm.evaluation.analysis import Analysis
from lam_vllm.evaluation.tables import Column, Figures, number, percent

PERCENTILES = (10, 25, 50, 75, 90)
_SHARE, _WHOLE, _COUNT = percent(1), percent(0), number(",")


def _at_most(characters: int) -> Callable[[str], str]:
    """Writes the end of a name that is longer: runs of one source differ there."""
    return lambda name: name if len(name) <= characters else "…" + name[1 - characters :]


_SOURCE = Column("source", "source", _at_most(18))
_PROFILE = Column("profile", "profile")


def run_table(analyses: Sequence[Analysis], limit: int | None) -> Figures:
    """What each profile removes from each run, net of references; the first `limit` runs (None: all)."""
    runs: dict[tuple[str, str, str], list[Analysis]] = {}
    for analysis in analyses:
        runs.setdefault((analysis.source, analysis.run, analysis.messages_digest), []).append(analysis)
    records = [
        {
            "run": of_run[0].run,
            "source": of_run[0].source,
            "observations": of_run[0].observations,
            "observation_tokens": of_run[0].observation_tokens,
            **{analysis.profile: analysis.removed_share for analysis in of_run},
        }
        for of_run in list(runs.values())[:limit]
    ]
    columns = (
        Column("run", "run", _at_most(40)),
        Column("observations", "results", _COUNT),
        Column("observation_tokens", "tokens", _COUNT),
        *(Column(profile, profile, _SHARE) for profile in dict.fromkeys(one.profile for one in analyses)),
    )
    more = len(runs) - len(records)
    note = f"and {more:,} more runs; --all shows them" if more > 0 else ""
    return Figures("runs", "tokens of tool output removed, net of references", columns, records, note)


def distribution_table(analyses: Sequence[Analysis]) -> Figures:
    """How the removed share is spread over the runs of each source that have tool output, those with nothing removed
    among them; `pooled` is the share of all their tokens together."""
    columns = (
        _SOURCE,
        _PROFILE,
        Column("runs", "runs", _COUNT),
        Column("without_tool_output", "empty", _COUNT),
        Column("nothing_removed", "zeros", _SHARE),
        *(Column(f"p{percentile}", f"p{percentile}", _WHOLE) for percentile in PERCENTILES),
        Column("max", "max", _WHOLE),
        Column("pooled", "pooled", _SHARE),
    )
    records = [_distribution(group) for group in _groups(analyses)]
    note = "over the runs that have tool output (not the empty ones); zeros: runs from which nothing is removed"
    return Figures("distribution", "removed per run", columns, records, note)


def rest_table(analyses: Sequence[Analysis]) -> Figures:
    """Where the tokens of each source's tool output go under each profile."""
    columns = (
        _SOURCE,
        _PROFILE,
        Column("observation_tokens", "tokens", _COUNT),
        Column("first_seen", "never shown before", _SHARE),
        Column("repeats_removed", "repeats removed", _SHARE),
        Column("repeats_kept", "repeats kept", _SHARE),
        Column("stubs", "stubs", _SHARE),
    )
    records = [_rest(group) for group in _groups(analyses)]
    note = "repeats kept: lines shown before, but too few tokens in a row for a reference to pay"
    return Figures("rest", "where the tokens of tool output go", columns, records, note)


def reason_table(analyses: Sequence[Analysis]) -> Figures:
    """How many tool results of each source were shortened, and how many stayed as they were for which reason."""
    columns = (
        _SOURCE,
        _PROFILE,
        Column("what", "what became of them"),
        Column("observations", "results", _COUNT),
        Column("share", "share", _SHARE),
    )
    records = [record for group in _groups(analyses) for record in _stayed(group)]
    return Figures("reasons", "tool results, and why they stayed", columns, records)


def records_of(analyses: Sequence[Analysis]) -> Figures:
    """Every analysis as one record of plain values, reasons as `stayed_REASON`, for CSV and JSON."""
    reasons = _reasons(analyses)
    records = [
        {
            "profile": one.profile,
            "source": one.source,
            "run": one.run,
            "observations": one.observations,
            "shortened": one.shortened,
            "observation_tokens": one.observation_tokens,
            "emitted_tokens": one.emitted_tokens,
            "removed_share": one.removed_share,
            "first_seen_tokens": one.first_seen_tokens,
            "repeats_removed_tokens": one.repeats_removed_tokens,
            "repeats_kept_tokens": one.repeats_kept_tokens,
            "stub_tokens": one.stub_tokens,
            "delta_hat": one.delta_hat,
            **{f"stayed_{reason}": one.reasons.get(reason, 0) for reason in reasons},
        }
        for one in analyses
    ]
    return Figures("analyses", "", (), records)


def _distribution(group: Sequence[Analysis]) -> dict[str, Any]:
    shares = [share for one in group if (share := one.removed_share) is not None]
    tokens = sum(one.observation_tokens for one in group)
    return {
        "source": group[0].source,
        "profile": group[0].profile,
        "runs": len(group),
        "without_tool_output": len(group) - len(shares),
        "nothing_removed": sum(share <= 0 for share in shares) / len(shares) if shares else None,
        **{f"p{percentile}": _percentile(shares, percentile) for percentile in PERCENTILES},
        "max": max(shares, default=None),
        "pooled": 1 - sum(one.emitted_tokens for one in group) / tokens if tokens else None,
    }


def _percentile(shares: Sequence[float], percentile: int) -> float | None:
    if len(shares) < 2:
        return shares[0] if shares else None
    return quantiles(shares, n=100, method="inclusive")[percentile - 1]


def _rest(group: Sequence[Analysis]) -> dict[str, Any]:
    tokens = sum(one.observation_tokens for one in group)
    kept = [one.repeats_kept_tokens for one in group]
    counts = {
        "first_seen": sum(one.first_seen_tokens for one in group),
        "repeats_removed": sum(one.repeats_removed_tokens for one in group),
        "repeats_kept": None if None in kept else sum(count or 0 for count in kept),
        "stubs": sum(one.stub_tokens for one in group),
    }
    shares = {name: count / tokens if tokens and count is not None else None for name, count in counts.items()}
    return {"source": group[0].source, "profile": group[0].profile, "observation_tokens": tokens, **shares}


def _stayed(group: Sequence[Analysis]) -> list[dict[str, Any]]:
    results = sum(one.observations for one in group)
    counts = Counter({"shortened": sum(one.shortened for one in group)})
    for one in group:
        counts.update(one.reasons)
    return [
        {
            "source": group[0].source,
            "profile": group[0].profile,
            "what": what,
            "observations": count,
            "share": count / results if results else None,
        }
        for what, count in counts.most_common()
    ]


def _groups(analyses: Iterable[Analysis]) -> list[list[Analysis]]:
    """The analyses of each source and profile, sources in the order in which they first come up."""
    groups: dict[str, dict[str, list[Analysis]]] = {}
    for one in analyses:
        groups.setdefault(one.source, {}).setdefault(one.profile, []).append(one)
    return [group for of_source in groups.values() for group in of_source.values()]


def _reasons(analyses: Iterable[Analysis]) -> list[str]:
    return sorted({reason for one in analyses for reason in one.reasons})
