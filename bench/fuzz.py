"""Thousands of requests that no client would send, to real servers with the plugin and small caps.

What they are is in tests/server/fuzzing.py (recorded conversations with mutated structure, on the APIs of vLLM and on
the plugin's routes) and tests/server/fuzz_routes.py (made from the server's OpenAPI description). Nine of ten go to
vLLM with the plugin, the others to `lam-vllm service`. vLLM without the plugin is the judge: an error of the server
that it has too is not the plugin's, and a request that it answers may only be refused for an option of the plugin's.
Afterwards each server has to be the one that it was: no process started again, no failure inside, memos and store
within their caps, and on vLLM the same prompt for a normal request.

Prints a table, what the plugin has to answer for, and the figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from corpus_data import ROOT, SERVED_MODEL, machine
from fuzz_figures import MEMO_BYTES, STORE_BYTES, Figures, figures_of, holds, table
from service_process import service
from vllm_server import serve

sys.path.append(str(ROOT))  # the requests are those of the tests

from tests.server.books import books
from tests.server.conftest import VLLM_ARGUMENTS
from tests.server.fuzz_judge import Verdict, fuzz, fuzz_alone, told
from tests.server.steady import steady_client
from tests.server.talks import body, recorded

SERVICE_SHARE = 0.1
FLAGS = (
    "--lam-profile=exact",
    "--lam-encoder=minilm",
    "--lam-threads=1",
    f"--lam-memo-bytes={MEMO_BYTES}",
    f"--lam-store-bytes={STORE_BYTES}",
)
PATHS = {"chat": "/v1/chat/completions/render", "responses": "/v1/responses/render", "messages": "/v1/messages/render"}


@contextmanager
def vllm_clients(logs: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of vLLM with the plugin, and of vLLM alone."""
    with (
        serve(SERVED_MODEL, *VLLM_ARGUMENTS, log=logs / "plain.log", plugin=False) as plain,
        serve(SERVED_MODEL, *VLLM_ARGUMENTS, *FLAGS, log=logs / "hooked.log") as hooked,
        steady_client(hooked.url) as ours,
        steady_client(plain.url) as alone,
    ):
        yield ours, alone


def of_vllm(logs: Path, *, seed: int, count: int, generated: int) -> Figures:
    """What vLLM with the plugin made of its requests."""
    with vllm_clients(logs) as (hooked, plain):
        normal, before = normal_prompts(hooked), books(hooked)
        verdict = fuzz(hooked, plain, seed=seed, count=count, generated=generated)
        after, same = books(hooked), normal_prompts(hooked) == normal
    show(verdict)
    return {**figures_of(verdict, before, after), "same_prompts_after": same}


def of_service(logs: Path, *, seed: int, count: int) -> Figures:
    """What the service made of its requests."""
    with service(*FLAGS, log=logs / "service.log", environment={}) as url, steady_client(url) as client:
        before = books(client)
        verdict = fuzz_alone(client, seed=seed, count=count)
        after = books(client)
    show(verdict)
    return figures_of(verdict, before, after)


def normal_prompts(client: httpx.Client) -> list[list[int]]:
    """The ids of a recorded conversation on each API."""
    answers = [
        client.post(path, json={"model": "smollm2", **body(api, recorded())}).raise_for_status()
        for api, path in PATHS.items()
    ]
    return [answer.json()["token_ids"] for answer in answers]


def show(verdict: Verdict) -> None:
    for paragraph in told(verdict.findings):
        print(f"fuzz: {paragraph}", file=sys.stderr)


def measure(asked: argparse.Namespace) -> Figures:
    """The figures of both servers."""
    logs, began = Path(tempfile.mkdtemp(prefix="fuzz-")), time.perf_counter()
    print(f"fuzz: logs of the servers are in {logs}", file=sys.stderr)
    alone = round(SERVICE_SHARE * asked.requests)
    parts = {
        "vLLM": of_vllm(logs, seed=asked.seed, count=asked.requests - alone, generated=asked.generated),
        "service": of_service(logs, seed=asked.seed, count=alone),
    }
    caps = {"memo_bytes": MEMO_BYTES, "store_bytes": STORE_BYTES}
    return {
        "machine": machine(),
        **vars(asked),
        "seconds": round(time.perf_counter() - began),
        "caps": caps,
        "parts": parts,
        "holds": all(map(holds, parts.values())) and parts["vLLM"]["same_prompts_after"],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="in all (default: %(default)s)")
    parser.add_argument("--generated", type=int, default=1_000, help="that may reach the engine (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=2, help="of all that is drawn; the tests have 9")
    return parser.parse_args()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are stopped then too
    figures = measure(arguments())
    print(figures["machine"])
    print(table(figures["parts"]))
    print(json.dumps(figures))
    return 0 if figures["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
