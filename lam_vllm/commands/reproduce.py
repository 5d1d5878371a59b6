"""`lam-vllm eval --reproduce`: the paper's tables with ours beside them, on its own runs where a hub can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import typer

from lam_vllm.commands.eval_output import Evaluated, Outputs
from lam_vllm.commands.eval_setup import Options, Setup, make_setup
from lam_vllm.commands.evaluate import Recorded, finish, measured, read
from lam_vllm.encoders.load import load_encoder
from lam_vllm.errors import EncoderError, InputFileError, OptionError
from lam_vllm.evaluation.corpus import Run, distinct, read_all
from lam_vllm.evaluation.measure import families
from lam_vllm.evaluation.measures.gold import harness_faults
from lam_vllm.evaluation.readers.hub import read_dataset
from lam_vllm.evaluation.study.corpus_figures import CorpusFigures, corpus_figures, sizes
from lam_vllm.evaluation.study.fixes import TASKS, with_fixes
from lam_vllm.evaluation.study.our_tables import Everything
from lam_vllm.evaluation.study.reproduce import (
    DATASET,
    ENCODER,
    NOT_HERE,
    THRESHOLDS_COS,
    beside_the_paper,
    fixed_sample,
    paper_tables,
    sample_digest,
)

NO_HUB = 1
"""The exit code where the paper's runs or its encoder cannot be fetched."""


def run(names: Sequence[str], options: Options, outputs: Outputs) -> int:
    """Sets the paper's tables beside those of these files, or of its own runs where none is named; the exit code.

    Raises:
        InputFileError: not one run of the files can be read.
        Whatever `make_setup`, `fetch` and `reproduce` raise.
    """
    if not options.encoders and not names:
        options = replace(options, encoders=(ENCODER,))
    recorded = read(names) if names else fetch(options.encoders[0])
    if recorded is None:
        return NO_HUB
    options = replace(options, sweep=True)
    with make_setup(options, recorded.runs) as setup:
        result, known = reproduce(recorded.runs, options, setup)
        return finish(result, recorded, options, outputs, setup, known)


def fetch(encoder: str) -> Recorded | None:
    """The fixed sample of the paper's data set, or None, with the reason on the error stream, where it is out of reach.

    The encoder, which is needed too and much smaller, is fetched first. Gold patches come from the tasks' own data set.

    Raises:
        MissingExtraError: a library that reads the data set or runs the encoder is not installed.
    """
    skipped: list[InputFileError] = []
    try:
        load_encoder(encoder)
        runs = fixed_sample(distinct(read_all([DATASET], skipped.append)))
    except EncoderError as error:
        _say_out_of_reach(error)
        return None
    if not runs:
        _say_out_of_reach(*skipped)
        return None
    typer.echo(f"of {DATASET} the runs with the smallest SHA-256 of their id; {len(skipped):,} cannot be read")
    try:
        return Recorded(with_fixes(runs, (task for _, task in read_dataset(TASKS))), skipped)
    except InputFileError as error:
        typer.echo(f"without gold patches, so without evidence: {error}", err=True)
        return Recorded(runs, skipped)


def reproduce(runs: Sequence[Run], options: Options, setup: Setup) -> tuple[Evaluated, CorpusFigures]:
    """The tables beside the paper's, and what is known of the encoder's windows.

    Raises:
        OptionError: there is no encoder.
        ValueError: no run has tool output.
    """
    encoder, windows = setup.inputs.encoder, setup.inputs.windows
    if encoder is None or windows is None:
        raise OptionError("encoder", None, "one, such as minilm: most of the paper's tables are about its windows")
    typer.echo(f"{len(runs):,} runs, digest of their ids {sample_digest(runs)}; encoder {encoder.name}")
    found = families(options.methods or ("none", *paper_tables()["17"]["columns"]), setup.inputs, sweep=options.sweep)
    rows = measured(runs, [method for family in found for method in family.methods], setup)
    known = corpus_figures(runs, encoder, windows, THRESHOLDS_COS)
    tables = beside_the_paper(Everything(rows, known, sizes(runs, setup.inputs.count_tokens)))
    left_out = {family.name: family.reason for family in found if family.reason}
    left_out |= {f"table {number}": reason for number, reason in NOT_HERE.items()}
    return Evaluated(rows, tables, left_out, harness_faults(rows)), known


def _say_out_of_reach(*reasons: Exception) -> None:
    typer.echo(f"no model hub can be reached for the paper's runs ({DATASET}) and its encoder:", err=True)
    for reason in reasons:
        typer.echo(f"  {reason}", err=True)
    typer.echo("name FILES, --encoder and --tokenizer to see the paper's tables beside those of local runs", err=True)
