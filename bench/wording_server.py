"""A vLLM server with the plugin on this machine's CPU, for as long as a benchmark asks it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corpus_data import SERVED_MODEL
from vllm_server import serve

ARGUMENTS = (
    "--served-model-name=smollm2",
    "--lam-profile=exact",
    "--max-model-len=4096",
    "--gpu-memory-utilization=0.3",  # of the machine's memory, on the CPU platform
    "--block-size=32",
    "--enable-prefix-caching",
    "--enforce-eager",
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@contextmanager
def cpu_server() -> Iterator[str]:
    """The URL of a server that runs inside the block, in one thread, and is stopped after it, whatever happens."""
    with tempfile.NamedTemporaryFile("w", prefix="stub-wording-", suffix=".log", delete=False) as log:
        pass
    with serve(SERVED_MODEL, *ARGUMENTS, log=Path(log.name), environment=ONE_THREAD) as server:
        yield server.url
