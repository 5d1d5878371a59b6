"""Where the data folders of the package are."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lam_vllm.errors import InputFileError


def resource(kind: Literal["configs", "kernels"]) -> Path:
    """The folder `kind`: inside the installed package, or beside the package in a checkout.

    Raises:
        InputFileError: it is in neither place.
    """
    package = Path(__file__).resolve().parent
    installed, checkout = package / kind, package.parent / kind
    for folder in (installed, checkout):
        if folder.is_dir():
            return folder
    raise InputFileError(installed, f"not in the package, nor at {checkout}; the installation is incomplete")
