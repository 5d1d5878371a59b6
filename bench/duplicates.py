"""Byte-exact duplicates within runs by granularity (the paper's table 5): records, paragraphs, windows, lines.

Tokens are the wordpieces of MiniLM, whose fixed windows these are; nothing is encoded. Prints a table, and the same
figures as one line of JSON, which results/duplicates.json keeps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from corpus_data import corpus_runs, machine, observed
from stored import markdown, measured_or_stored

from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.measures.duplicates import WINDOW_TOKENS, duplicates


def measure(sources: Sequence[str], limit: int | None) -> dict[str, Any]:
    offsets = load_encoder("minilm").token_offsets
    texts = {source: [observed(run.messages) for run in corpus_runs([source], limit)] for source in sources}
    if len(sources) > 1:
        texts["all"] = [run for runs in texts.values() for run in runs]
    return {
        "setup": machine(),
        "window_tokens": WINDOW_TOKENS,
        "sources": {
            source: {name: asdict(found) for name, found in duplicates(runs, offsets).items()}
            for source, runs in texts.items()
        },
    }


def table(figures: dict[str, Any]) -> str:
    """By source: all tokens, and which share of them each granularity has met before."""
    return markdown(
        ("source", "wordpieces", "records", "paragraphs", "windows", "lines"),
        (
            (
                source,
                f"{units['record']['tokens']:,}",
                *(f"{unit['duplicate_tokens'] / max(1, unit['tokens']):.2%}" for unit in units.values()),
            )
            for source, units in figures["sources"].items()
        ),
    )


def main() -> None:
    figures = measured_or_stored(__doc__, "duplicates", measure)
    print(f"{figures['setup']}\n{table(figures)}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
