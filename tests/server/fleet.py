"""vLLM as an operator runs it for many users: several API processes, two engines, one store for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests.redis_server import RedisServer
from tests.server.waiting import wait_for

if TYPE_CHECKING:
    from tests.server.conftest import LiveServer

PROCESSES = ENGINES = 2
TIME_LIMIT_SECONDS = 10
STORE_BYTES = 3_000_000
SHUTDOWN_SECONDS = 5
"""Of several engines vLLM takes all of it, whatever there is to do."""
FLEET_KEY = "a key of the tests, no secret"
MOST_CONNECTIONS = 16

FLEET_ARGUMENTS = (
    f"--api-server-count={PROCESSES}",
    f"--data-parallel-size={ENGINES}",
    "--lam-profile=guarded",
    "--lam-encoder=minilm",
    "--lam-threads=1",
    f"--lam-time-limit-seconds={TIME_LIMIT_SECONDS}",
    f"--lam-store-bytes={STORE_BYTES}",
    f"--shutdown-timeout={SHUTDOWN_SECONDS}",
)
FLEET_ENVIRONMENT = {
    "LAM_KEY": FLEET_KEY,
    "VLLM_CPU_KVCACHE_SPACE": "1",  # of each engine
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",  # a client that stays connected stays with its process
}


@dataclass(frozen=True)
class Fleet:
    """One running server and its Redis. The worker that the file `hang` names hangs in its next call of its encoder."""

    server: LiveServer
    redis: RedisServer
    hang: Path

    @contextmanager
    def clients(self) -> Iterator[dict[int, httpx.Client]]:
        """A client of each API process, by process id.

        vLLM gives a connection to the process that has fewest, so the clients keep theirs: one on which a process
        answered a second time stays open too until the others are found.
        """
        with ExitStack() as open_clients:
            found = self._met(open_clients)
            assert len(found) == PROCESSES, f"only the processes {list(found)} answer"
            yield found

    def wait_until_ready(self) -> None:
        """Return when every API process answers: one that came up before the others calls the server healthy."""

        def all_answer() -> bool:
            with ExitStack() as open_clients:
                return len(self._met(open_clients)) == PROCESSES

        self.server.wait_until_ready()
        wait_for(all_answer)

    def _met(self, open_clients: ExitStack) -> dict[int, httpx.Client]:
        """The processes that so many connections as may be needed come to, and a client of each."""
        found: dict[int, httpx.Client] = {}
        for _ in range(MOST_CONNECTIONS):
            client = open_clients.enter_context(self.server.client())
            found.setdefault(status(client)["process"], client)
            if len(found) == PROCESSES:
                break
        return found

    @property
    def process_ids(self) -> list[int]:
        """The API processes."""
        with self.clients() as clients:
            return sorted(clients)


def status(client: httpx.Client) -> dict[str, Any]:
    """What GET /v1/lam/status says."""
    answer: dict[str, Any] = client.get("/v1/lam/status").raise_for_status().json()
    return answer
