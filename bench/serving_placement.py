"""Which cores the engine and the compactor get, by memory node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lam_vllm.errors import OptionError

PLACEMENTS = ("unrestricted", "near", "far")
_NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True, slots=True)
class Placement:
    """Cores of the engine and of the compactor (None: nobody restricts them), and what that means on this machine."""

    name: str
    engine: tuple[int, ...] | None
    compactor: tuple[int, ...] | None
    note: str

    @property
    def environment(self) -> dict[str, str]:
        """What places vLLM's engine."""
        return {} if self.engine is None else {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, self.engine))}

    @property
    def flags(self) -> list[str]:
        """What places the compactor."""
        return [] if self.compactor is None else [f"--lam-cpus={','.join(map(str, self.compactor))}"]


def place(name: str, nodes: Sequence[tuple[int, ...]]) -> Placement:
    """The placement called `name` on a machine whose memory nodes have these cores.

    The engine gets the first half of the first node. `near` gives the compactor the other half of it, `far` the last
    node; with one node there is nothing farther than the other half.

    Raises:
        OptionError: there is none of this name, or it needs a second core.
    """
    if name not in PLACEMENTS:
        raise OptionError("placement", name, ", ".join(PLACEMENTS))
    counted = f"{len(nodes)} memory node{'s' * (len(nodes) != 1)}"
    if name == "unrestricted":
        return Placement(name, None, None, f"{counted}; vLLM places its engine itself, the compactor runs anywhere")
    first, half = nodes[0], len(nodes[0]) // 2
    if half == 0:
        raise OptionError("placement", name, "unrestricted, as the first memory node has one core")
    if len(nodes) == 1:
        note = "1 memory node, so near and far are the same: cores apart, memory shared"
        return Placement(name, first[:half], first[half:], note)
    return Placement(name, first[:half], first[half:] if name == "near" else nodes[-1], counted)


def memory_nodes() -> list[tuple[int, ...]]:
    """The cores of each memory node that this process may use; one node where the system does not tell."""
    usable = os.sched_getaffinity(0)
    files = sorted(_NODES.glob("node[0-9]*/cpulist"), key=lambda file: int(file.parent.name.removeprefix("node")))
    lists = [file.read_text() for file in files]
    nodes = [tuple(sorted(_cores(text) & usable)) for text in lists]
    return [node for node in nodes if node] or [tuple(sorted(usable))]


def _cores(text: str) -> set[int]:
    """Cores out of a list such as 0-3,8."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    return {core for first, _, last in ranges for core in range(int(first), int(last or first) + 1)}
