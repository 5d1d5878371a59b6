"""Writes the dashboard that description.py describes: `python docker/grafana/dashboards.py [FILE]`."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from description import DASHBOARD, HOW_TO_READ
from grafana_foundation_sdk.builders import dashboard, text
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import VariableOption, VariableRefresh
from grafana_foundation_sdk.models.text import TextMode
from kinds import SOURCE

FILE = Path(__file__).parent / "dashboards" / "lam.json"


def build() -> str:
    """The dashboard as Grafana's JSON."""
    board = dashboard.Dashboard("lam-vllm").uid("lam-vllm").tags(["lam", "vllm"]).refresh("30s").time("now-1h", "now")
    board = board.description("Repeated tool output that is never prefilled, and whether all is well with it.")
    board = board.with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Prometheus"))
    board = board.with_variable(_variable("job", "label_values(lam:queue_depth, job)"))
    board = board.with_variable(_variable("instance", 'label_values(lam:queue_depth{job=~"$job"}, instance)'))
    how_to_read = text.Panel().title("How to read this").mode(TextMode.MARKDOWN).content(HOW_TO_READ)
    number = count(1)
    board = board.with_panel(how_to_read.span(24).height(4).id(next(number)))
    for title, panels in DASHBOARD.items():
        board = board.with_row(dashboard.Row(title).id(next(number)))
        for panel in panels:
            board = board.with_panel(panel.builder(next(number)))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    """A choice of values of a label, all of them at first."""
    made = dashboard.QueryVariable(name).query(query).datasource(SOURCE).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    every = VariableOption(selected=True, text=["All"], value=["$__all"])
    return made.multi(True).include_all(True).all_value(".*").current(every)


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).write_text(build(), encoding="utf-8")
