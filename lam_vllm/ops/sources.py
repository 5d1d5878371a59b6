"""The text of the kernels, and how it is compiled for a device."""

from __future__ import annotations

from pathlib import Path

from lam_vllm.resources import resource

KERNELS = ("codec_decode", "codec_encode", "l2_verify", "quantize_bands")
"""One file each, whose kernel is called `lam_` and its name."""
OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""What NVRTC and nvcc are told: every operation rounded on its own, subnormal numbers kept, as IEEE 754 has it."""


def source_file(kernel: str) -> Path:
    """The file of one of `KERNELS`.

    Raises:
        InputFileError: the installation is incomplete.
    """
    return resource("kernels") / f"{kernel}.cu"


def compiler_options() -> tuple[str, ...]:
    """`OPTIONS` and where the headers are.

    Raises:
        InputFileError: the installation is incomplete.
    """
    return (*OPTIONS, f"-I{resource('kernels') / 'include'}")
