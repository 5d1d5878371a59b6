"""The devices that are built in. Only GB10 was measured, by the paper; the others are what their data sheets say."""

from __future__ import annotations

from pathlib import Path

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.device import Constant, Device, read_device
from lam_vllm.performance_model.json_file import is_file

_MEASURED = "the paper's table 22, measured on GB10"
_EXACT = Constant(
    10_000 / 7.09e-3,
    "tok/s",
    "python bench/compactor.py: 2.45 + 4.64 ms for 10,000 new tokens, one core of an AMD EPYC",
    "measured",
)

GB10 = Device(
    "GB10",
    memory_bandwidth=Constant(237.4e9, "B/s", f"{_MEASURED}: triad (the data sheet has 273e9)", "printed"),
    matrix_rate=Constant(90.3e12, "FLOP/s", f"{_MEASURED}: fp16", "printed"),
    prefill_efficiency=Constant(0.70, "1", "not printed; the one of a grid that gives 14 printed cells", "fitted"),
    memory=Constant(128e9, "B", "decimal, nothing reserved: gives the printed turn 1,341", "fitted"),
    encoder_rate=Constant(71_708, "tok/s", f"{_MEASURED}: bge-base-en-v1.5", "printed"),
    quantize_rate=Constant(65.4e9, "B/s", _MEASURED, "printed"),
    hash_rate=Constant(38.2e9, "B/s", _MEASURED, "printed"),
    verify_rate=Constant(13.0e6, "pair/s", _MEASURED, "printed"),
    codec_rate=Constant(53.3e9, "B/s", _MEASURED, "printed"),
    exact_rate=_EXACT,
)
TRIAD_SHARE = 237.4 / 273
"""What GB10's memory reaches of its data sheet (table 22: 0.869); taken for the devices that nobody measured."""


def _from_data_sheet(name: str, sheet: str, bandwidth: float, matrix_rate: float, memory: float) -> Device:
    faster = matrix_rate / GB10.matrix_rate.value
    of_gb10 = "GB10's, as it is: not measured here"
    return Device(
        name,
        memory_bandwidth=Constant(
            TRIAD_SHARE * bandwidth, "B/s", f"{sheet}: {bandwidth:.4g}, times GB10's triad share", "estimated"
        ),
        matrix_rate=Constant(matrix_rate, "FLOP/s", f"{sheet}: dense bf16", "data sheet"),
        prefill_efficiency=Constant(GB10.prefill_efficiency.value, "1", of_gb10, "estimated"),
        memory=Constant(memory, "B", f"{sheet}, decimal", "data sheet"),
        encoder_rate=Constant(
            GB10.encoder_rate.value * faster, "tok/s", "GB10's, times the ratio of the matrix rates", "estimated"
        ),
        quantize_rate=Constant(GB10.quantize_rate.value, "B/s", of_gb10, "estimated"),
        hash_rate=Constant(GB10.hash_rate.value, "B/s", of_gb10, "estimated"),
        verify_rate=Constant(GB10.verify_rate.value, "pair/s", of_gb10, "estimated"),
        codec_rate=Constant(GB10.codec_rate.value, "B/s", of_gb10, "estimated"),
        exact_rate=_EXACT,
    )


A100_40GB = _from_data_sheet("A100-40GB", "NVIDIA A100 data sheet, SXM 40 GB", 1555e9, 312e12, 40e9)
H100 = _from_data_sheet("H100", "NVIDIA H100 data sheet, SXM", 3350e9, 989.4e12, 80e9)
H200 = _from_data_sheet("H200", "NVIDIA H200 data sheet, SXM", 4800e9, 989.4e12, 141e9)
PRESETS = {device.name: device for device in (GB10, A100_40GB, H100, H200)}


def find_device(name: str) -> Device:
    """The preset of this name, or the device in this JSON file.

    Raises:
        OptionError: there is neither, or a constant of the file has a value that it cannot have.
        InputFileError: the file is not one of a device.
    """
    by_name = {preset.lower(): device for preset, device in PRESETS.items()}
    if name.lower() in by_name:
        return by_name[name.lower()]
    if is_file(name):
        return read_device(Path(name))
    raise OptionError("device", name, f"{', '.join(PRESETS)}, or a JSON file that describes one")
