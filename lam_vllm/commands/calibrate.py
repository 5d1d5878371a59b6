"""`lam-vllm calibrate encoder`: t, guard band and basis of an encoder, from the user's own traces, into a profile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from lam_vllm.commands.eval_setup import Options, Setup, make_setup
from lam_vllm.commands.evaluate import Recorded, measured, read
from lam_vllm.encoders.load import load_encoder
from lam_vllm.encoders.profile import SUFFIX, EncoderProfile, read_profile, user_profiles, write_profile
from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.evaluation.calibration import (
    Floors,
    measure_bands,
    methods_at,
    propose_band,
    propose_threshold,
    sample_texts,
)
from lam_vllm.evaluation.calibration_tables import band_table, source_table, threshold_table
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.tables import Figures
from lam_vllm.search.basis import principal_basis, write_basis

BASIS_SUFFIX = ".npy"
NO_PROPOSAL = 1
"""The exit code where no t of the grid keeps the floors: no profile is written."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is measured and proposed: the descending grid of t, the floors, and on how many windows the guard band."""

    thresholds_cos: Sequence[float]
    floors: Floors
    sample_windows: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the runs speak for, with the tables that show why; no `threshold_cos` where no t keeps the floors.

    `max_abs` is the largest |x| of any coordinate of the windows' embeddings, `basis` (K, D) the directions in which
    these are longest: the basis of a pruned search.
    """

    threshold_cos: float | None
    guard_band: float
    max_abs: float
    basis: NDArray[np.float32]
    fingerprint: str
    tables: Sequence[Figures]


def run(
    name: str,
    files: Sequence[str],
    rule: Rule,
    *,
    tokenizer: str | None,
    cache: Path | None,
    target: Path | None,
    json_file: Path | None,
) -> int:
    """Calibrates the encoder called `name` on these runs, prints, writes its profile to `target`; the exit code.

    Raises:
        InputFileError: not one run can be read, none has tool output, or a file cannot be written.
        Whatever `make_setup` and `load_encoder` raise.
    """
    profile = _found_from_anywhere(read_profile(name))
    recorded = read(files)
    with _folder(cache) as folder, make_setup(Options(tokenizer, folder, (name,)), recorded.runs) as setup:
        found = calibrate(name, recorded.runs, rule, setup)
    _show(found, rule)
    if json_file:
        _write_json(found, name, rule, recorded, json_file)
    if found.threshold_cos is None:
        return NO_PROPOSAL
    if target:
        basis = target.with_suffix(BASIS_SUFFIX)
        write_profile(_calibrated(profile, found, basis), target)
        write_basis(found.basis, basis)
        typer.echo(f"written: {target} and {basis.name}")
    return 0


def calibrate(name: str, runs: Sequence[Run], rule: Rule, setup: Setup) -> Calibration:
    """What these runs say of the encoder called `name`, which `setup` has as its own.

    Raises:
        InputFileError: no run has tool output.
        MissingExtraError, EncoderError: as `load_encoder`.
        OptionError: as `load_encoder`.
    """
    windows = setup.inputs.windows
    assert windows is not None  # the setup has an encoder
    texts = sample_texts((text for run in runs for text in windows.windowed(run).texts()), rule.sample_windows)
    if not texts:
        raise InputFileError(runs[0].id, "no run has tool output")
    rows = measured(runs, methods_at(rule.thresholds_cos, setup.inputs), setup)
    encoder = load_encoder(name)
    with Console(stderr=True).status(f"encoding {len(texts):,} windows in every way"):
        bands = measure_bands(encoder, texts)
    embeddings = np.concatenate([windows.rows(run) for run in runs])
    return Calibration(
        propose_threshold(rows, rule.thresholds_cos, rule.floors),
        propose_band(bands),
        min(1.0, float(f"{np.abs(embeddings).max():.4g}")),
        principal_basis(embeddings),
        encoder.fingerprint,
        [
            threshold_table(rows, rule.thresholds_cos),
            source_table(rows, rule.thresholds_cos, rule.floors),
            band_table(bands, len(texts)),
        ],
    )


def target_of(name: str, out: Path | None, *, force: bool) -> Path:
    """Where the profile goes: `out`, or the user's folder under the encoder's name. Asked before the work is done.

    Raises:
        OptionError: there is no `out` and the encoder's name is none of a profile, or `out` does not end in .yaml.
        InputFileError: there is such a file already, or one where its basis goes, and `force` is not given.
    """
    if out is None and (Path(name).name != name or name.endswith(SUFFIX)):
        raise OptionError("out", None, f"a file NAME{SUFFIX}, since {name!r} is no name for a profile")
    target = out or user_profiles() / f"{name}{SUFFIX}"
    if target.suffix != SUFFIX:
        raise OptionError("out", str(target), f"a file whose name ends in {SUFFIX}")
    for file in (target, target.with_suffix(BASIS_SUFFIX)):
        if file.exists() and not force:
            raise InputFileError(file, "is there already; --force writes over it, --out elsewhere")
    return target


@contextmanager
def _folder(cache: Path | None) -> Iterator[Path]:
    """Where rows and embeddings are kept: for the next time, or until this is over."""
    if cache:
        yield cache
        return
    with TemporaryDirectory(prefix="lam-vllm-calibrate-") as folder:
        yield Path(folder)


def _found_from_anywhere(profile: EncoderProfile) -> EncoderProfile:
    """The profile with the full path of a local model, since the file will be read in other working directories."""
    local = {
        name: value for name in ("model", "tokenizer") if (value := getattr(profile, name)) and Path(value).exists()
    }
    return profile.model_copy(update={name: str(Path(value).resolve()) for name, value in local.items()})


def _calibrated(profile: EncoderProfile, found: Calibration, basis: Path) -> EncoderProfile:
    """The profile with what was found; `basis` is where its basis will be, beside the profile's file."""
    measured_here = {
        "threshold_cos": found.threshold_cos,
        "guard_band": found.guard_band,
        "guard_band_fingerprint": found.fingerprint,
        "max_abs": found.max_abs,
        "basis": basis.name,
    }
    return profile.model_copy(update=measured_here)


def _show(found: Calibration, rule: Rule) -> None:
    console = Console()
    for table in found.tables:
        console.print(table.terminal())
    asked = f"{rule.floors.lines:.2%} of the distinct lines and {rule.floors.gold:.2%} of the gold lines"
    if found.threshold_cos is None:
        typer.echo(f"no proposal: L1 at t = {rule.thresholds_cos[0]:g}, the highest, does not keep {asked}", err=True)
    else:
        typer.echo(f"proposed: t = {found.threshold_cos:g}, the lowest down to which L1 keeps {asked}")
    typer.echo(f"proposed: guard band {found.guard_band:.6f} in cosine")
    typer.echo(f"measured: max|x| {found.max_abs:g}, and a basis of {len(found.basis)} directions")


def _write_json(found: Calibration, name: str, rule: Rule, recorded: Recorded, target: Path) -> None:
    figures: dict[str, Any] = {table.name: table.json() for table in found.tables}
    proposal = {
        "encoder": name,
        "fingerprint": found.fingerprint,
        "threshold_cos": found.threshold_cos,
        "guard_band_cos": found.guard_band,
        "max_abs": found.max_abs,
        "line_floor": rule.floors.lines,
        "gold_floor": rule.floors.gold,
    }
    skipped = [str(error) for error in recorded.skipped]
    text = json.dumps({"proposal": proposal, **figures, "skipped": skipped}, indent=1) + "\n"
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputFileError(target, f"cannot be written: {error.strerror or error}") from None
