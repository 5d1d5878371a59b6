"""The paper's tables with our figures beside the paper's, and the sample of runs that the comparison is fixed to.

The paper's figures are those of `paper_tables.json`: facts that it prints of its own runs and encoder. Nothing here is
tuned towards them, and other runs, another encoder and another tokenizer give other figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from heapq import nsmallest
from importlib.resources import files
from typing import Any

from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.study.our_tables import Everything, our_tables
from lam_vllm.evaluation.tables import Column, Figures, number

SAMPLE = 600
DATASET = "SWE-bench/SWE-smith-trajectories:tool"
ENCODER = "bge-base"
THRESHOLDS_COS = (0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)
"""Every t of the tables."""
_MODEL = "there is no performance model of a device here yet"
_SERVING = "measured while serving on a GPU"
_NO_COPY = "its figures are not in our copy of the paper"
_CODEC = "there is no codec for embeddings here yet"
NOT_HERE = {
    "1": "rates of the paper's device",
    "2": f"seconds per turn: {_MODEL}",
    "4": _NO_COPY,
    "7": f"latency by context and batch: {_MODEL}",
    "8": f"seconds of each schedule: {_MODEL}",
    "9": _SERVING,
    "10": "latency of the test by turn, measured on the paper's device",
    "13": f"seconds of each step of a pass: {_MODEL}",
    "14": _NO_COPY,
    "20": f"recall on a retrieval set: {_CODEC}",
    "22": "constants of the paper's device",
    "26": "recall of the banded search: bench/search.py measures it",
    "27": f"compaction at once and by arrival: {_MODEL}",
}
"""The paper's other tables, and why each is not computed."""


def fixed_sample(runs: Iterable[Run], size: int = SAMPLE) -> list[Run]:
    """The `size` runs whose ids have the smallest SHA-256, in that order, in whatever order the runs come."""
    return nsmallest(size, runs, key=lambda run: sha256(run.id.encode()).digest())


def sample_digest(runs: Iterable[Run]) -> str:
    """SHA-256, in hex, of the sorted ids, a line each."""
    return sha256("".join(f"{name}\n" for name in sorted(run.id for run in runs)).encode()).hexdigest()


def paper_tables() -> dict[str, dict[str, Any]]:
    """The paper's tables by number: `title`, `key`, `columns`, `rows` of figures by key; null: not known."""
    text = (files("lam_vllm.evaluation.study") / "paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = json.loads(text)
    return tables


def beside_the_paper(known: Everything) -> list[Figures]:
    """A table for each of the paper's, with two columns for each of its: the paper's figure and ours."""
    papers = paper_tables()
    ours = our_tables(known, papers["17"]["columns"])
    return [_beside(name, paper, ours[name]) for name, paper in papers.items()]


def _beside(name: str, paper: Mapping[str, Any], ours: Mapping[str, Sequence[Any]]) -> Figures:
    columns = [Column(paper["key"], paper["key"])]
    for place, heading in enumerate(paper["columns"]):
        form = number(f".{_decimals(row[place] for row in paper['rows'].values())}f")
        columns += [Column(f"{heading}, paper", f"{heading}\npaper", form), Column(f"{heading}, ours", "\nours", form)]
    keys = [column.key for column in columns[1:]]
    records = []
    for key, theirs in paper["rows"].items():
        mine = ours.get(key, [None] * len(theirs))
        figures = [figure for pair in zip(theirs, mine, strict=True) for figure in pair]
        records.append({paper["key"]: key, **dict(zip(keys, figures, strict=True))})
    return Figures(f"table_{name}", f"table {name}: {paper['title']}", tuple(columns), records)


def _decimals(figures: Iterable[float | None]) -> int:
    """Digits behind the point that the paper prints; two where it prints nothing that is known."""
    printed = [str(figure) for figure in figures if figure is not None]
    return max((len(text.partition(".")[2]) for text in printed), default=2)
