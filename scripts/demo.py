"""A real vLLM server on this machine's CPUs answers real recorded agents, plugin off and on; one table tells."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lam_vllm.errors import LamError
from lam_vllm.evaluation.corpus import Run, find_run
from lam_vllm.evaluation.live.client import Client, ServerError
from lam_vllm.evaluation.live.replay import ReplayResult, prompts, replay
from lam_vllm.evaluation.live.report import summarise, summary_table

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / ".models"
LOG = ROOT / ".models" / "demo-server.log"
CORPUS = ROOT / "tests" / "data" / "corpus" / "trajectories.jsonl.xz"
RUNS = (
    "mini_gemini3_verified/scikit-learn__scikit-learn-13439",
    "sweagent_demos/trajectories/demonstrations/ctf/rev/rock.traj",
    "swesmith_samples/pydantic__pydantic.acb0f10f.pr_8316",
)
START_SECONDS = 300
ANSWER_TOKENS = 4
ARGUMENTS = (
    "--host=127.0.0.1",
    "--served-model-name=smollm2",
    "--lam-profile=guarded",
    f"--lam-encoder={MODELS / 'minilm'}",
    "--max-model-len=8192",
    "--gpu-memory-utilization=0.4",  # of the machine's memory, on the CPU platform
    "--block-size=32",
    "--enable-prefix-caching",
    "--enforce-eager",
)

console = Console(stderr=True)


@contextmanager
def server() -> Iterator[Client]:
    """A client of a server that runs inside the block, and is stopped after it, whatever happens."""
    port = free_port()
    command = [sys.executable, "-c", "from lam_vllm.cli import main; main()", "serve", str(MODELS / "smollm2")]
    with LOG.open("w") as log:
        process = subprocess.Popen(
            [*command, f"--port={port}", *ARGUMENTS],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=server_environment(),
            cwd=ROOT,
            start_new_session=True,  # so that its engine process can be stopped with it
        )
    try:
        client = Client(f"http://127.0.0.1:{port}")
        with console.status("starting vLLM on the CPU with the plugin"):
            wait_for(client, process)
        yield client
    finally:
        stop(process)


def server_environment() -> dict[str, str]:
    """The caller's environment without settings that would make another server of it, and without a model hub."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VLLM_API_KEY", "VLLM_PLUGINS") and not name.startswith("LAM_")
    }
    return {**kept, "VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(client: Client, process: subprocess.Popen[bytes]) -> None:
    """Return when the plugin answers.

    Raises:
        ServerError: the server ended, runs without the plugin, or does not answer in time; names its log.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"the server ended with code {process.returncode}; see {LOG}")
        try:
            client.get_json("/v1/lam/status")
        except ServerError as error:
            if error.status is not None:
                raise ServerError(f"the server runs without the plugin; see {LOG}") from error
            time.sleep(1)
        else:
            return
    raise ServerError(f"the server did not answer within {START_SECONDS} seconds; see {LOG}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def replay_all(client: Client, runs: list[Run]) -> list[ReplayResult]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("replaying", total=sum(2 * len(prompts(run.messages)) for run in runs))
        return [replay(run, client, max_tokens=ANSWER_TOKENS, on_turn=lambda: progress.advance(task)) for run in runs]


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is stopped then too
    runs = [find_run(CORPUS, run_id) for run_id in RUNS]
    try:
        with server() as client:
            results = replay_all(client, runs)
    except LamError as error:
        console.print(f"demo: {error}")
        return 2
    Console().print(summary_table(results, "SmolLM2-135M on vLLM, three recorded agent runs"))
    total = summarise(results)
    if total.prefix_breaks.total():
        console.print("demo: a cached prefix broke")
        return 1
    if total.on.uncached_tokens >= total.off.uncached_tokens:
        console.print("demo: nothing was saved")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
