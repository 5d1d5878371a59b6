"""Accuracy by wording out of rows: with how much certainty, and against the same questions with the plugin off."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import comb, sqrt
from typing import Any

from wording_answers import Row
from wording_questions import Question

OFF = "off"
Z95 = 1.959964
"""Standard errors to each side of a 95% interval."""


def accuracy(questions: Sequence[Question], rows: Sequence[Row], variants: Collection[str]) -> dict[str, Any]:
    """Figures by variant: right answers of all, those that only one of off and on has, and what chance makes of it.

    `copied` counts answers that print a reference or a short name instead of what it stands for.
    """
    right = {(row.question, row.variant): row.right for row in rows}
    copied = Counter(row.variant for row in rows if row.copied)
    return {variant: {**_figures(questions, right, variant), "copied": copied[variant]} for variant in (OFF, *variants)}


def _figures(questions: Sequence[Question], right: Mapping[tuple[str, str], bool], variant: str) -> dict[str, Any]:
    pairs = [(right[question.id, OFF], right[question.id, variant]) for question in questions]
    hits, lost, gained = sum(on for _, on in pairs), pairs.count((True, False)), pairs.count((False, True))
    low, high = wilson(hits, len(pairs))
    return {
        "questions": len(pairs),
        "right": hits,
        "accuracy": _percent(hits, len(pairs)),
        "interval95": [round(100 * low, 1), round(100 * high, 1)],
        "both_right": pairs.count((True, True)),
        "off_right_on_wrong": lost,
        "off_wrong_on_right": gained,
        "p": float(f"{sign_test(lost, gained):.2g}"),
        **{
            field: {
                value: _share(
                    [right[question.id, variant] for question in questions if getattr(question, field) == value]
                )
                for value in dict.fromkeys(getattr(question, field) for question in questions)
            }
            for field in ("kind", "template")
        },
    }


def compared(questions: Sequence[Question], rows: Sequence[Row], first: str, second: str) -> dict[str, Any]:
    """How often only one of two variants is right, and the two-sided chance of a split as uneven between equals."""
    right: dict[str, dict[str, bool]] = defaultdict(dict)
    for row in rows:
        right[row.variant][row.question] = row.right
    pairs = [(right[first][question.id], right[second][question.id]) for question in questions]
    only_first, only_second = pairs.count((True, False)), pairs.count((False, True))
    return {
        f"only {first}": only_first,
        f"only {second}": only_second,
        "p": float(f"{sign_test(only_first, only_second):.2g}"),
    }


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95% score interval (Wilson 1927) of a share of `total` > 0 trials."""
    share = hits / total
    centre = share + Z95**2 / (2 * total)
    half = Z95 * sqrt(share * (1 - share) / total + (Z95 / (2 * total)) ** 2)
    scale = 1 + Z95**2 / total
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def sign_test(lost: int, gained: int) -> float:
    """The exact two-sided McNemar test: the chance of so uneven a split of the discordant pairs, or a worse one."""
    total = lost + gained
    tail = sum(comb(total, count) for count in range(min(lost, gained) + 1)) / (1 << total)
    return min(1.0, 2 * tail)


def _share(values: Sequence[bool]) -> str:
    return f"{sum(values)}/{len(values)}"


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1)
