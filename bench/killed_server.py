"""A vLLM server that is killed with -9 over a request, all its processes at once, and started again on the same store.

`lam-vllm serve` with two API processes, the profile `guarded`, and a store in a file. After the second start:

- the prompt of a conversation that the first server had compacted has the same token ids;
- the text that was removed then is found under its id, and fewer of its windows are encoded (not none: the encoder
  begins before the store has answered);
- no prefix is broken, and no process of the first server is left.

Prints what was found and the seconds of each start, and the figures as one line of JSON; exits with 1 unless all of
it holds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from corpus_data import ROOT, SERVED_MODEL, machine
from vllm_server import ServerProcess, serve

sys.path.append(str(ROOT))  # the requests are those of the tests

from lam_vllm.errors import LamError
from lam_vllm.records import open_records
from lam_vllm.stores import StoreSettings, open_rows
from tests.server.asking import fleet_key, look_up, removed_record, render, samples
from tests.server.conftest import SERVED_NAME, VLLM_ARGUMENTS
from tests.server.fleet import FLEET_ENVIRONMENT, status
from tests.server.talks import body, by_user, recorded
from tests.server.waiting import is_running

SALT = "killed"
WAIT_SECONDS = 60
STORE_BYTES = 100_000_000
ARGUMENTS = (*VLLM_ARGUMENTS, "--api-server-count=2", "--lam-profile=guarded", "--lam-encoder=minilm")
FAST = 'lam:encoder_windows_total{source="fast"}'


@contextmanager
def started(folder: Path, name: str) -> Iterator[tuple[ServerProcess, httpx.Client, float]]:
    """A server on the store in this folder, a client of it, and the seconds that its start took."""
    environment = {**FLEET_ENVIRONMENT, "LAM_STORE_URL": str(folder / "store.sqlite")}
    began = time.perf_counter()
    with serve(SERVED_MODEL, *ARGUMENTS, log=folder / f"{name}.log", environment=environment) as server:
        seconds = time.perf_counter() - began
        with httpx.Client(base_url=server.url, timeout=120) as client:
            yield server, client, seconds


def wait_for(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise LamError(f"{what} did not come about in {WAIT_SECONDS} seconds")
        time.sleep(0.05)


def killed(folder: Path) -> dict[str, Any]:
    """What the first server made and kept, until it was killed over a request."""
    messages = by_user("before", recorded())
    with started(folder, "first") as (server, client, seconds):
        identity, ids = removed_record(client, messages, SALT), render(client, messages, cache_salt=SALT)
        wait_for("writing", lambda: all(written(folder, identity)))
        encoded = samples(client)[FAST]
        text, processes = look_up(client, identity, SALT).json()["text"], server.process_ids
        over = cut_off(server)
        wait_for("the end of all processes", lambda: not any(map(is_running, processes)))
    return {
        "ids": ids,
        "record": identity,
        "text": text,
        "encoded": encoded,
        "processes": len(processes),
        "seconds": seconds,
        "over": over,
    }


def written(folder: Path, identity: str) -> tuple[bool, bool]:
    """Whether the record, and whether embeddings are in the file, as another process sees it."""
    settings = StoreSettings(str(folder / "store.sqlite"), STORE_BYTES, 3_600)
    records = open_records(settings, fleet_key())
    embeddings = open_rows(settings, "embeddings", fleet_key(), lambda _errors: None)
    embeddings.refresh()
    found = records.look_up(SALT, identity).text is not None, embeddings.nbytes > 0
    records.close()
    embeddings.close()
    return found


def cut_off(server: ServerProcess) -> str:
    """Kill the server while it answers; what its client saw."""
    fields = {"model": SERVED_NAME, **body("chat", recorded()), "max_tokens": 500, "ignore_eos": True, "stream": True}
    with (
        httpx.Client(base_url=server.url, timeout=120) as client,
        client.stream("POST", "/v1/chat/completions", json=fields) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        os.killpg(server.process.pid, signal.SIGKILL)  # its own session: this server's processes and no others
        try:
            return f"all of {len(list(lines))} lines"
        except httpx.TransportError as error:
            return type(error).__name__


def found(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    """Whether the second server goes on where the first ended."""
    messages = by_user("before", recorded())
    with started(folder, "second") as (_, client, seconds):
        kept, encoded = look_up(client, before["record"], SALT), samples(client)[FAST]
        ids = render(client, messages, cache_salt=SALT)
        return {
            "seconds": seconds,
            "same_ids": ids == before["ids"],
            "same_text": kept.is_success and kept.json()["text"] == before["text"],
            "encoded": samples(client)[FAST] - encoded,
            "breaks": sum(status(client)["prefix_breaks"].values()),
        }


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="killed-"))
    before = killed(folder)
    after = found(folder, before)
    figures = {
        "machine": machine(),
        "processes_killed": before["processes"],
        "client_saw": before["over"],
        "first_start_seconds": round(before["seconds"], 1),
        "second_start_seconds": round(after.pop("seconds"), 1),
        "prompt_tokens": len(before["ids"]),
        "encoded_before": before["encoded"],
        **after,
    }
    for name, value in figures.items():
        print(f"{name:>22}  {value}")
    print(json.dumps(figures))
    same = after["same_ids"] and after["same_text"] and not after["breaks"]
    return 0 if same and after["encoded"] < before["encoded"] else 1


if __name__ == "__main__":
    sys.exit(main())
