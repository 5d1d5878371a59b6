"""`lam-vllm inspect`: one run of a file as a page that shows what was removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lam_vllm.compactor import Compactor
from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.inspection.page import render_page
from lam_vllm.evaluation.inspection.view import Inspection, inspect_run


def write_page(run: Run, target: Path, compactor: Compactor, count_tokens: Callable[[str], int]) -> Inspection:
    """What the page `target` shows.

    Raises:
        EncoderError: the encoder failed.
        InputFileError: `target` cannot be written.
    """
    inspection = inspect_run(run, compactor, count_tokens)
    try:
        target.write_text(render_page(inspection), encoding="ascii")
    except OSError as error:
        raise InputFileError(target, f"cannot be written: {error.strerror or error}") from None
    return inspection


def summary(inspection: Inspection) -> str:
    """The page's totals in one line."""
    tokens = inspection.tokens
    share = f" ({100 * tokens.net / tokens.original:.1f}%)" if tokens.original else ""
    return (
        f"{len(inspection.cuts):,} cuts: {tokens.removed:,} of {tokens.original:,} tokens of tool output removed, "
        f"{tokens.stubs:,} spent on stubs, net {tokens.net:,}{share}"
    )
