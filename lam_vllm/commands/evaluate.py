"""`lam-vllm eval`: every method on recorded runs, kept row by row; then tables, files and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lam_vllm.commands.eval_output import Evaluated, Outputs, show, write_csv, write_json
from lam_vllm.commands.eval_setup import Options, Setup, make_setup, open_encoder
from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.evaluation.baselines import family_names
from lam_vllm.evaluation.baselines.components import ConnectedComponents
from lam_vllm.evaluation.corpus import Run, distinct, read_all
from lam_vllm.evaluation.measure import families, measure
from lam_vllm.evaluation.measures.ecr import THRESHOLDS_COS
from lam_vllm.evaluation.measures.gold import Unmeasurable, harness_faults, lost_lines
from lam_vllm.evaluation.measures.rates import rates
from lam_vllm.evaluation.method import Method
from lam_vllm.evaluation.rows import Row, by
from lam_vllm.evaluation.score import observation_texts
from lam_vllm.evaluation.study.bound_table import bound_table
from lam_vllm.evaluation.study.corpus_figures import CorpusFigures, T, corpus_figures, layers_together, sizes
from lam_vllm.evaluation.study.figures import Measured, draw_figures
from lam_vllm.evaluation.study.sweep import size_table, sweep_tables
from lam_vllm.evaluation.tables import Figures


@dataclass(frozen=True, slots=True)
class Recorded:
    """The runs that could be read, no two of a source with one id, and what could not."""

    runs: Sequence[Run]
    skipped: Sequence[InputFileError] = ()


def run(names: Sequence[str], options: Options, outputs: Outputs) -> int:
    """Evaluates the runs of these files or data sets, prints and writes; the exit code.

    Raises:
        OptionError: nothing is named.
        InputFileError: not one run can be read, or a file cannot be written.
        Whatever `make_setup` and `evaluate` raise.
    """
    if not names:
        raise OptionError("files", None, "files or data sets, or --reproduce")
    recorded = read(names)
    with make_setup(options, recorded.runs) as setup:
        result = evaluate(recorded.runs, options, setup, list_lost=outputs.csv or outputs.json)
        return finish(result, recorded, options, outputs, setup)


def finish(
    result: Evaluated,
    recorded: Recorded,
    options: Options,
    outputs: Outputs,
    setup: Setup,
    known: CorpusFigures | None = None,
) -> int:
    """Prints and writes what was found; the exit code, 1 where the rows contradict what must hold."""
    result = replace(result, tables=[*result.tables, skipped_table(recorded.skipped)])
    show(result)
    if outputs.json:
        write_json(result, options.out / "eval.json")
    if outputs.csv:
        write_csv(result, options.out)
    if outputs.figures:
        for path in write_figures(result, recorded.runs, options, setup, known):
            typer.echo(f"drawn: {path}", err=True)
    return int(bool(result.faults))


def read(names: Iterable[str | Path]) -> Recorded:
    """The runs of these files or data sets; what cannot be read is counted, said and left out.

    Raises:
        InputFileError: not one run can be read.
    """
    skipped: list[InputFileError] = []
    runs = list(distinct(read_all(names, skipped.append)))
    if skipped:
        typer.echo(f"skipped {len(skipped):,}:", err=True)
    for error in skipped:
        typer.echo(f"  {error}", err=True)
    if not runs:
        raise InputFileError(", ".join(map(str, names)), "no run can be read")
    return Recorded(runs, skipped)


def evaluate(runs: Sequence[Run], options: Options, setup: Setup, *, list_lost: bool) -> Evaluated:
    """Every method on every run: rows that are there already are taken, the others made and kept.

    `list_lost` adds the gold lines that each method loses, unless it is a sweep.

    Raises:
        OptionError: there is no such method.
        Whatever a method raises.
    """
    found = families(options.methods or family_names(), setup.inputs, sweep=options.sweep)
    methods = [method for family in found for method in family.methods]
    rows = measured(runs, methods, setup)
    tables = rates(rows)
    if options.sweep:
        for (source,), group in by(rows, "source").items():
            of_source = sizes([run for run in runs if run.source == source], setup.inputs.count_tokens)
            tables += sweep_tables(source, group, of_source.workload)
    elif list_lost:
        tables.append(lost_table(rows, runs, methods))
    chained = [method for method in methods if isinstance(method, ConnectedComponents)]
    if chained and not options.sweep:
        tables.append(bound_table(chained, runs))
    tables.append(size_table(usual_rows(rows, options, setup)))
    left_out = {family.name: family.reason for family in found if family.reason}
    return Evaluated(rows, tables, left_out, harness_faults(rows))


def lost_table(rows: Iterable[Row], runs: Sequence[Run], methods: Sequence[Method]) -> Figures:
    """Every gold line that a method loses, for the files alone; runs that lose one are shortened once more."""
    losing: dict[tuple[str, str, int], set[tuple[str, str]]] = {}
    for row in rows:
        if row.gold_kept is not None and row.gold_kept < row.gold_witnessed:
            losing.setdefault((row.method, row.setting, row.seed), set()).add((row.source, row.run))
    records = []
    for method in methods:
        names = losing.get((method.name, method.setting, method.seed), set())
        lost = lost_lines(method, [run for run in runs if (run.source, run.id) in names])
        chosen = {"method": method.name, "setting": method.setting, "seed": method.seed}
        records += [] if isinstance(lost, Unmeasurable) else [chosen | asdict(each) for each in lost]
    return Figures("lost", "", (), records)


def skipped_table(skipped: Iterable[InputFileError]) -> Figures:
    """What could not be read and why, for the files alone."""
    return Figures("skipped", "", (), [{"place": error.place, "reason": error.why} for error in skipped])


def measured(runs: Sequence[Run], methods: Sequence[Method], setup: Setup) -> list[Row]:
    """The rows, with a bar of progress on the error stream."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    rows = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=len(methods) * len(runs))
        for row in measure(methods, runs, setup.inputs.count_tokens, setup.store, setup.cpu_seconds):
            rows.append(row)
            progress.update(task, advance=1, description=row.method)
    return rows


def usual_rows(rows: Sequence[Row], options: Options, setup: Setup) -> list[Row]:
    """Of a sweep's rows those of the settings that are measured without one."""
    if not options.sweep:
        return list(rows)
    names = [method for (method,) in by(rows, "method")]
    usual = families(names, setup.inputs, sweep=False)
    wanted = {(method.name, method.setting) for family in usual for method in family.methods}
    return [row for row in rows if (row.method, row.setting) in wanted]


def write_figures(
    result: Evaluated, runs: Sequence[Run], options: Options, setup: Setup, known: CorpusFigures | None
) -> list[Path]:
    """The figures that the rows and the encoders allow; `known` is what is known of the encoder's windows already.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    encoder, windows = setup.inputs.encoder, setup.inputs.windows
    if known is None and encoder is not None and windows is not None:
        known = corpus_figures(runs, encoder, windows, THRESHOLDS_COS)
    drawn = Measured(
        result.rows,
        usual_rows(result.rows, options, setup),
        known.windows if known else {},
        known.layers if known else {},
        by_encoder(runs, options) if len(options.encoders) > 1 else {},
    )
    return draw_figures(drawn, options.out)


def by_encoder(runs: Sequence[Run], options: Options) -> dict[str, float]:
    """What L1, then L0 remove at t = 0.95 under each encoder, net, as a share of its own tokens."""
    texts = [found for run in runs if (found := observation_texts(run.messages))]
    shares = {}
    for name in options.encoders:
        encoder = open_encoder(name, options.out)
        shares[name] = layers_together(texts, encoder, [T])[T].l1_then_l0_net
        encoder.close()
    return shares
