"""The report of the performance model, printed and drawn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean

import typer
from rich.console import Console

from lam_vllm.commands.model_report import Report
from lam_vllm.commands.model_tables import tables
from lam_vllm.commands.model_words import caveats
from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.study.model_figures import Modelled, draw_model_figures
from lam_vllm.performance_model.capacity import contexts
from lam_vllm.performance_model.forecast import comparable
from lam_vllm.performance_model.presets import A100_40GB, GB10
from lam_vllm.performance_model.workload import without_removal


@dataclass(frozen=True, slots=True)
class Outputs:
    """How the command answers; figures go into the folder `out`."""

    json: bool = False
    figures: bool = False
    out: Path = Path("lam-model")


def show(report: Report, *, as_json: bool) -> None:
    """Prints tables and then, in words, when it does not pay; or one JSON object of all of it."""
    made = tables(report)
    if as_json:
        typer.echo(json.dumps({table.name: table.json() for table in made}))
        return
    console = Console()
    for table in made:
        if table.columns and table.records:
            terminal = table.terminal()
            terminal.padding = (0, 0)  # ten columns have to fit into 80 characters
            console.print(terminal)
    console.print("When it does not pay:", style="bold")
    for caveat in caveats(report):
        here = {True: " (so here)", False: " (not so here)", None: ""}[caveat.applies]
        console.print(f"- {caveat.about}{here}. {caveat.text}", highlight=False, markup=False)


def write_figures(report: Report, folder: Path) -> list[Path]:
    """The figures 1, 8, 9a and 9c of this report, in `folder`, which is made.

    Raises:
        InputFileError: the folder cannot be made.
        MissingExtraError: matplotlib is not installed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputFileError(folder, error.strerror or str(error)) from None
    engine, runs = report.engine, comparable(report.engine, report.first.runs)
    turns = list(chain.from_iterable(report.first.runs))
    other = GB10 if engine.device.name == A100_40GB.name else A100_40GB
    admitted = [contexts(engine, run, admitted=True) for run in runs]
    plain = [contexts(engine, without_removal(run), admitted=True) for run in runs]
    modelled = Modelled(
        engine,
        [report.plain, *(report.of_first(name) for name in ("admit", "suffix", "in_place"))],
        {report.plain.policy: _by_turn(plain), report.of_first("admit").policy: _by_turn(admitted)},
        (engine.device, other),
        fmean(turn.arriving_tokens for turn in turns),
        fmean(turn.decoded_tokens for turn in turns),
    )
    return draw_model_figures(modelled, folder)


def _by_turn(runs: list[list[float]]) -> list[float]:
    """The mean by turn, over the runs that have it."""
    longest = max(map(len, runs), default=0)
    return [fmean(run[place] for run in runs if len(run) > place) for place in range(longest)]
