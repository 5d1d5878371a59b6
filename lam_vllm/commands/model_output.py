"""The report of the performance model, printed and drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from statistics import fmean

import typer
from rich.console import Console

from lam_vllm.commands.model_report import Report
from lam_vllm.commands.model_tables import shortened, tables
from lam_vllm.commands.model_words import caveats
from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.study.model_figures import Modelled, draw_model_figures
from lam_vllm.performance_model.capacity import contexts, most_context_tokens, turns_that_fit
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import Runs, full_turn
from lam_vllm.performance_model.presets import A100_40GB, GB10
from lam_vllm.performance_model.workload import MOST_TURNS, without_removal


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
        typer.echo(json.dumps({table.name: table.json() for table in made}, allow_nan=False))
        return
    console = Console()
    for table in made:
        if table.columns and table.records:
            terminal = shortened(table).terminal()
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
    return draw_model_figures(drawn(report), folder)


def drawn(report: Report) -> Modelled:
    """What the figures are drawn from; how full the cache gets is followed as far as each policy has turns that fit."""
    engine, first = report.engine, report.first
    turns = list(chain.from_iterable(first.runs))
    other = GB10 if engine.device.name == A100_40GB.name else A100_40GB
    return Modelled(
        engine,
        [report.plain, *(report.of_first(name) for name in ("admit", "suffix", "in_place"))],
        {
            report.plain.policy: _held(engine, [without_removal(run) for run in first.runs], goes_on=first.goes_on),
            report.of_first("admit").policy: _held(engine, first.runs, goes_on=first.goes_on),
        },
        (engine.device, other),
        fmean(turn.arriving_tokens for turn in turns),
        fmean(turn.decoded_tokens for turn in turns),
        len(first.runs),
    )


def _held(engine: Engine, runs: Runs, *, goes_on: bool) -> list[float]:
    """What the context holds after each turn that fits under this very policy: the mean of the runs that have it."""
    held = []
    for run in runs:
        full = full_turn([run], most_context_tokens(engine)) if goes_on else None
        longer = [*run, *repeat(run[-1], max(0, min(full or 0, MOST_TURNS) - len(run)))]
        held.append(contexts(engine, longer[: turns_that_fit(engine, longer, admitted=True)], admitted=True))
    return _by_turn(held)


def _by_turn(runs: Sequence[Sequence[float]]) -> list[float]:
    """The mean by turn, over the runs that have it."""
    longest = max(map(len, runs), default=0)
    return [fmean(run[place] for run in runs if len(run) > place) for place in range(longest)]
