"""`lam-vllm analyze`: what each profile would remove from the user's own traces, and why the rest stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lam_vllm.commands.compact import make_compactor
from lam_vllm.compactor import Compactor
from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.analysis import Analysis, AnalysisFile, analyse, key_of
from lam_vllm.evaluation.analysis_tables import distribution_table, reason_table, records_of, rest_table, run_table
from lam_vllm.evaluation.corpus import Run, read_all
from lam_vllm.evaluation.readers.hub import is_dataset

SHOWN = 20
"""Rows of a long list that are printed without `--all`."""


@dataclass(slots=True)
class Outcome:
    """An analysis for each run and profile, in the order of the files, and what could not be read.

    `resumed` of the analyses were found on disk.
    """

    analyses: list[Analysis] = field(default_factory=list)
    skipped: list[InputFileError] = field(default_factory=list)
    resumed: int = 0

    def add(
        self, run: Run, compactor: Compactor, count_tokens: Callable[[str], int], file: AnalysisFile | None
    ) -> None:
        """Take the analysis of this run from the file, or make it and keep it there."""
        known = file.get(key_of(run, compactor)) if file else None
        analysis = known or analyse(run, compactor, count_tokens)
        if known:
            self.resumed += 1
        elif file:
            file.add(analysis)
        self.analyses.append(analysis)


def make_compactors(
    profiles: Sequence[str], flags: dict[str, Any], encoder: str | None, tokenizer: str
) -> tuple[list[Compactor], Callable[[str], int]]:
    """A compactor for each profile (none named: `exact`, and `guarded` with an encoder), and the token counter.

    Raises:
        OptionError, MissingExtraError, EncoderError: as `make_compactor`.
    """
    wanted = list(dict.fromkeys(profiles)) or (["exact", "guarded"] if encoder else ["exact"])
    made = [
        make_compactor({**flags, "profile": profile}, None, None if profile == "exact" else encoder, tokenizer)
        for profile in wanted
    ]
    return [compactor for compactor, _ in made], made[0][1]


def analyze_files(
    names: Sequence[str], compactors: Sequence[Compactor], count_tokens: Callable[[str], int], out: Path | None
) -> Outcome:
    """What every profile would remove from every run; with `out`, what is there already is not done again.

    Raises:
        InputFileError: `out` is no file of analyses, or cannot be written.
        MissingExtraError: a data set is named, and the library for it is not installed.
        EncoderError: the encoder failed.
    """
    file = AnalysisFile(out) if out else None
    outcome = Outcome()
    with _progress() as progress:
        task = progress.add_task("counting runs", total=_count(names))
        for run in read_all(names, outcome.skipped.append):
            progress.update(task, description=run.id[-40:])
            for compactor in compactors:
                outcome.add(run, compactor, count_tokens, file)
            progress.advance(task)
    return outcome


def write_csv(outcome: Outcome, target: Path) -> None:
    """A row for each run and profile in `target`.

    Raises:
        InputFileError: it cannot be written.
    """
    try:
        target.write_text(records_of(outcome.analyses).csv(), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputFileError(target, f"cannot be written: {error.strerror or error}") from None


def show(outcome: Outcome, *, as_json: bool, show_all: bool) -> None:
    """Print tables, or one JSON object; what was skipped is printed in both cases, as an error."""
    limit = None if show_all else SHOWN
    _show_skipped(outcome.skipped, limit)
    spread = (distribution_table, rest_table, reason_table)
    if as_json:
        figures = {"analyses": records_of(outcome.analyses)} | {
            made.name: made for made in (table(outcome.analyses) for table in spread)
        }
        skipped = [str(error) for error in outcome.skipped]
        typer.echo(json.dumps({name: made.json() for name, made in figures.items()} | {"skipped": skipped}))
    elif outcome.analyses:
        console = Console()
        for made in (run_table(outcome.analyses, limit), *(table(outcome.analyses) for table in spread)):
            narrow = made.terminal()
            narrow.padding = (0, 0)  # twelve columns have to fit into 80 characters
            console.print(narrow)
        if outcome.resumed:
            console.print(f"{outcome.resumed:,} of {len(outcome.analyses):,} analyses were on disk already")


def _show_skipped(skipped: Sequence[InputFileError], limit: int | None) -> None:
    if not skipped:
        return
    typer.echo(f"skipped {len(skipped):,}:", err=True)
    for error in skipped[:limit]:
        typer.echo(f"  {error}", err=True)
    if limit is not None and len(skipped) > limit:
        typer.echo(f"  and {len(skipped) - limit:,} more; --all shows them", err=True)


def _count(names: Sequence[str]) -> int | None:
    """How many runs there are, by reading once; None where reading is fetching."""
    if any(is_dataset(name) for name in names):
        return None
    return sum(1 for _ in read_all(names, lambda _: None))


def _progress() -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
