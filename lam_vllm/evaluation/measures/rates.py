"""What each method does to the runs of each source: the rates of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lam_vllm.evaluation.measures.gold import Unmeasurable, gold_rates, line_retention, net_removal, word_retention
from lam_vllm.evaluation.rows import Row, by
from lam_vllm.evaluation.tables import Column, Figures, number, percent

NO_TOKENS = Unmeasurable("no tool output")
COLUMNS = (
    Column("label", "method"),
    Column("removed_net", "removed\nnet", percent(2)),
    Column("gold_kept", "gold\nkept", percent(2)),
    Column("gold_kept_relaxed", "\nrelaxed", percent(2)),
    Column("lines_kept", "lines\nkept", percent(2)),
    Column("words_kept", "words\nkept", percent(1)),
    Column("cpu_ms_per_1k_tokens", "ms per\n1K", number(",.2f")),
)


def rates(rows: Iterable[Row]) -> list[Figures]:
    """A table for each source, in the order of the rows, with a record for each method and setting.

    `removed_net` is net of references; `gold_kept*` are shares of the gold lines that the tool output had, strict and
    micro where nothing else is said; `lines_kept` and `words_kept` of its distinct lines, and of the words of overlong
    ones. Seeds are taken together: counts are those of one. Times are CPU time per 1,000 tokens of tool output.
    """
    return [
        _table(source, [{"source": source, **summed(group)} for group in by(of_source, "method", "setting").values()])
        for (source,), of_source in by(rows, "source").items()
    ]


def _table(source: str, records: list[dict[str, Any]]) -> Figures:
    first = records[0]
    note = (
        f"{first['runs']:,} runs, {first['observation_tokens']:,} tokens of tool output, in it "
        f"{first['gold_witnessed']:,} gold lines, {first['distinct_lines']:,} distinct lines, "
        f"{first['long_words']:,} words of overlong lines; ms: CPU time per 1,000 tokens"
    )
    return Figures("rates", f"{source}: what is removed, and what stays", COLUMNS, records, note)


def summed(rows: Sequence[Row]) -> dict[str, Any]:
    """The record of one method at one setting."""
    seeds = len({row.seed for row in rows})
    tokens = sum(row.observation_tokens for row in rows)
    gold = gold_rates(rows)
    return {
        "label": f"{rows[0].method} {rows[0].setting}".strip(),
        "method": rows[0].method,
        "setting": rows[0].setting,
        "seeds": seeds,
        "runs": len(rows) // seeds,
        "observation_tokens": tokens // seeds,
        "removed_net": net_removal(rows),
        "gold_witnessed": gold.witnessed // seeds,
        "gold_kept": gold.strict_micro,
        "gold_kept_macro": gold.strict_macro,
        "gold_kept_relaxed": gold.relaxed_micro,
        "gold_kept_relaxed_macro": gold.relaxed_macro,
        "distinct_lines": sum(row.distinct_lines for row in rows) // seeds,
        "lines_kept": line_retention(rows),
        "long_words": sum(row.long_words for row in rows) // seeds,
        "words_kept": word_retention(rows),
        "cpu_ms_per_1k_tokens": 1e3 * sum(row.cpu_ms for row in rows) / tokens if tokens else NO_TOKENS,
    }
