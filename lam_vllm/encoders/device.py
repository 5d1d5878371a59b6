"""Where an encoder runs, and why there: asked for as `cpu`, `cuda` or `auto`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, get_args

from lam_vllm.errors import OptionError
from lam_vllm.ops.arrays import HOST, Arrays

Kind = Literal["cpu", "cuda"]
Wanted = Literal["auto", "cpu", "cuda"]
WANTED: tuple[Wanted, ...] = get_args(Wanted)

NEEDED_BYTES = 2 * 2**30
"""Free memory of a GPU under which it is not taken: a model in two precisions, its widest batch, and kept rows."""


@dataclass(frozen=True, slots=True)
class Device:
    """`kind` is what torch calls it; `reason` says why it was chosen."""

    kind: Kind
    reason: str


CPU = Device("cpu", "the default")


def choose_device(wanted: Wanted, name: str = "device") -> Device:
    """The device that is asked for; `auto` is a GPU where one can be used. Imports torch unless `cpu` is wanted.

    Raises:
        OptionError: `cuda` is wanted and no GPU can be used: names `name`, which is what asked, and the reason.
    """
    if wanted == "cpu":
        return Device("cpu", "asked for")
    problem = unusable()
    if problem:
        if wanted == "cuda":
            raise OptionError(name, wanted, f"cpu or auto on this machine: {problem}")
        return Device("cpu", problem)
    return Device("cuda", f"{'asked for' if wanted == 'cuda' else 'can be used'}: {gpu_facts()}")


def unusable() -> str:
    """Why no GPU can be used for an encoder here, in a few words; "" where one can."""
    for look in (_torch_problem, _cupy_problem, _memory_problem, _kernel_problem):
        if problem := look():
            return problem
    return ""


def gpu_facts() -> str:
    """What of the GPU decides bits: its name, its architecture, and the CUDA that torch is built with."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()}, sm_{major}{minor}, CUDA {torch.version.cuda}"


def device_arrays(device: Device) -> Arrays:
    """The array operations of this device."""
    if device.kind == "cpu":
        return HOST
    import cupy

    from lam_vllm.ops import cuda
    from lam_vllm.ops.on_device import DeviceArrays

    return DeviceArrays(cupy, cuda, cupy.asnumpy)


def prepare_cuda() -> None:
    """Has cuBLAS add in one order, unless the user said otherwise: it reads this when it is first used."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def _torch_problem() -> str:
    if find_spec("torch") is None:
        return "torch is not installed (extra encoder)"
    import torch

    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else f": torch {torch.__version__} is built without CUDA"
        return f"torch sees no GPU{built}"
    return "" if torch.version.cuda else "torch is built for a GPU that is not CUDA's"


def _cupy_problem() -> str:
    if find_spec("cupy") is None:
        return "CuPy is not installed (extra cuda)"
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # noqa: BLE001 - of many kinds: a library, a driver, a version that does not fit
        return f"CuPy does not work: {type(error).__name__}: {error}"
    return ""


def _memory_problem() -> str:
    import torch

    free, _ = torch.cuda.mem_get_info()
    if free >= NEEDED_BYTES:
        return ""
    return f"{free / 2**30:.1f} GiB of the GPU's memory are free, {NEEDED_BYTES / 2**30:.0f} are needed"


def _kernel_problem() -> str:
    from lam_vllm.ops import cuda

    try:
        cuda.load()
    except Exception as error:  # noqa: BLE001 - of CuPy, of its compiler, or ours
        return f"the kernels do not load: {type(error).__name__}: {error}"
    return ""
