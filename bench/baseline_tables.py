"""Tables of the profiles beside every baseline, for README.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from textwrap import fill
from typing import Any

from baselines import ROWS
from corpus_data import SOURCES
from stored import markdown, stored, written

from lam_vllm.evaluation.measures.by_size import by_size
from lam_vllm.evaluation.rows import Row, by, read_rows
from lam_vllm.evaluation.tables import number, percent

BY_SIZE = (
    ("l0", ""),
    ("span_folding", "real references"),
    ("exact", ""),
    ("guarded", "t=0.95"),
    ("paper", "t=0.95"),
)


def baselines() -> str:
    forms: dict[str, Callable[[Any], str]] = {
        "runs": str,
        "removed_net": percent(2),
        "gold_kept": percent(2),
        "gold_kept_relaxed": percent(2),
        "gold_witnessed": number(","),
        "lines_kept": percent(2),
        "distinct_lines": number(","),
        "cpu_ms_per_1k_tokens": number(",.2f"),
    }
    return markdown(
        ("source", "method", "runs", "removed, net", "gold kept", "relaxed", "of", "lines kept", "of", "ms per 1K"),
        (
            (line["source"], line["label"], *(written(line[key], form) for key, form in forms.items()))
            for line in stored("baselines")["table"]
        ),
    )


def left_out() -> str:
    """A sentence for each family that has no row, and why."""
    sentences = (f"- `{name}` has no row: {reason}." for name, reason in stored("baselines")["left_out"].items())
    return "\n".join(fill(sentence, 120, subsequent_indent="  ", break_on_hyphens=False) for sentence in sentences)


def ratios() -> str:
    figures = stored("baselines")
    columns = {
        "exact_over_span_folding": ("exact over span folding", ".3f"),
        "exact_over_span_folding_own_text": ("own text too", ".3f"),
        "guarded_over_exact": ("guarded over exact", ".3f"),
        "encoder_adds_points": ("encoder adds, points", ".3f"),
        "exact_removed": ("exact removes", ".3f"),
        "exact_with_aliases_removed": ("with aliases", ".3f"),
    }
    return markdown(
        ("source", *(heading for heading, _ in columns.values())),
        (
            (source, *(written(figures[f"{key}_{source}"], number(form)) for key, (_, form) in columns.items()))
            for source in SOURCES
        ),
    )


def sizes() -> str:
    """Removal by tokens of tool output in the run, by source (the paper's figure 9b)."""
    headings = (" ".join(filter(None, method)) for method in BY_SIZE)
    return markdown(("source", "tokens of tool output", "runs", *headings), _sizes())


def _sizes() -> Iterator[tuple[str, ...]]:
    groups = by(read_rows(ROWS, Row), "source", "method", "setting")
    for source in SOURCES:
        for bins in zip(*(by_size(groups[source, *method]) for method in BY_SIZE), strict=True):
            tokens = f"{bins[0].least_tokens:,} to {bins[0].below_tokens:,}"
            yield source, tokens, str(bins[0].runs), *(written(each.removal, percent(2)) for each in bins)
