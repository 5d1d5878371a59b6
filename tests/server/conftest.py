"""Real vLLM servers on the CPU for the whole run: without the plugin, with it and an API key, and of many processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from lam_vllm.encoders.base import BatchEncoder
from tests.conftest import measured_before
from tests.ports import free_port
from tests.redis_server import RedisServer
from tests.server.faults import HANG_VARIABLE, install_faults, install_hanging_encoder
from tests.server.fleet import FLEET_ARGUMENTS, FLEET_ENVIRONMENT, Fleet
from tests.server.otlp import TraceReceiver

ROOT = Path(__file__).parents[2]
MODEL = str(ROOT / ".models/smollm2")
SERVED_NAME, OTHER_NAME = "smollm2", "other"
"""Two names of one model; a server with the plugin may be told to treat them differently."""
API_KEY = "sesame"
BLOCK_TOKENS = 32
CONTEXT_TOKENS = 3_072
START_SECONDS = 300
STOP_SECONDS = 60
MEMO_BYTES, STORE_BYTES = 2_000_000, 500_000
"""Caps of the server with the plugin, of which a thousand requests fill the first and a few long texts the second."""

VLLM_ARGUMENTS = (
    "--served-model-name",
    SERVED_NAME,
    OTHER_NAME,
    "--enforce-eager",
    "--gpu-memory-utilization=0.4",
    f"--block-size={BLOCK_TOKENS}",
    f"--max-model-len={CONTEXT_TOKENS}",
    "--enable-auto-tool-choice",
    "--tool-call-parser=hermes",
    "--enable-prompt-tokens-details",
    "--enable-scale-out",  # the render routes, which show a prompt's ids without prefilling it
)
KV_EVENTS = {"enable_kv_cache_events": True, "endpoint": "ipc://kv-events", "replay_endpoint": "ipc://kv-replay"}
"""Sockets in the folder that a server is started in."""
SERVE = ("-c", "import sys; from lam_vllm.serving.launch import serve; serve(sys.argv[1:])")


@dataclass(frozen=True)
class LiveServer:
    """A server that answers at `url`; `api_key` is None where it asks for none."""

    url: str
    api_key: str | None
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def headers(self) -> dict[str, str]:
        """What every request to a server with a key needs."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def client(self, *, with_key: bool = True) -> httpx.Client:
        """A plain HTTP client."""
        return httpx.Client(base_url=self.url, headers=self.headers if with_key else {}, timeout=120)

    def wait_until_ready(self) -> None:
        """Return when the server answers; fail with the end of its log when it ended or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        pytest.fail("the server did not start:\n" + log_end(self.log), pytrace=False)

    def stop(self) -> None:
        """End this server, its engine process with it."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)  # its own session: this server's processes and no others
            self.process.wait()


def server_environment(extra: Mapping[str, str], *import_paths: Path) -> dict[str, str]:
    """The environment of a server under test: nothing of the user's own plugin settings, no model hub."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VLLM_PLUGINS", "VLLM_API_KEY") and not name.startswith("LAM_")
    }
    paths = [str(ROOT), *map(str, import_paths), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_ENABLE_RESPONSES_API_STORE": "1",
        **extra,
    }


def log_end(log: Path, characters: int = 5_000) -> str:
    """The last part of a log."""
    return log.read_text(errors="replace")[-characters:]


def start(log: Path, python: Sequence[str], api_key: str | None, environment: Mapping[str, str]) -> LiveServer:
    """A server that is starting: `python` and the arguments that every server here gets."""
    port = free_port()
    key = [f"--api-key={api_key}"] if api_key else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *python, *VLLM_ARGUMENTS, f"--port={port}", "--host=127.0.0.1", *key],
            env=dict(environment), cwd=log.parent, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    return LiveServer(f"http://127.0.0.1:{port}", api_key, process, log)


@pytest.fixture(scope="session")
def measured(encoder: BatchEncoder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a server whose encoder was measured before; vLLM's own cache stays where it is."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return {
        "XDG_CACHE_HOME": str(measured_before(encoder, tmp_path_factory.mktemp("cache"))),
        "VLLM_CACHE_ROOT": os.environ.get("VLLM_CACHE_ROOT") or str(usual / "vllm"),
    }


@pytest.fixture(scope="session")
def servers(
    measured: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveServer, LiveServer]]:
    """Both servers, started at the same time: without the plugin, and with it."""
    folder = tmp_path_factory.mktemp("servers")
    faults = install_faults(folder / "faults")
    plain = ("-m", "vllm.entrypoints.openai.api_server", "--model", MODEL)
    settings = ("--lam-profile=exact", "--lam-encoder=minilm", "--lam-threads=1")
    caps = (f"--lam-memo-bytes={MEMO_BYTES}", f"--lam-store-bytes={STORE_BYTES}")
    of_models = folder / "models.yaml"
    of_models.write_text(f"models: {{{OTHER_NAME}: {{enabled: false}}}}\n")
    hooked = (*SERVE, MODEL, *settings, *caps, f"--kv-events-config={json.dumps(KV_EVENTS)}")
    started = (
        start(folder / "plain.log", plain, None, server_environment({})),
        start(
            folder / "hooked.log",
            hooked,
            API_KEY,
            server_environment({**measured, "LAM_CONFIG": str(of_models)}, faults),
        ),
    )
    try:
        for server in started:
            server.wait_until_ready()
        yield started
    finally:
        for server in started:
            server.stop()


@pytest.fixture(scope="session")
def plain(servers: tuple[LiveServer, LiveServer]) -> LiveServer:
    """vLLM without the plugin."""
    return servers[0]


@pytest.fixture(scope="session")
def hooked(servers: tuple[LiveServer, LiveServer]) -> LiveServer:
    """vLLM with the plugin: profile `exact` by default, an encoder for requests that ask for `guarded`, a key.

    Off for requests that call the model `OTHER_NAME`.
    """
    return servers[1]


@pytest.fixture(scope="session")
def traces() -> Iterator[TraceReceiver]:
    """What the fleet exports as OpenTelemetry spans."""
    with TraceReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def fleet(measured: dict[str, str], traces: TraceReceiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """vLLM with two API processes and two engines, profile `guarded` by default, and a Redis that they share."""
    folder = tmp_path_factory.mktemp("fleet")
    faults = (install_faults(folder / "faults"), install_hanging_encoder(folder / "hanging"))
    redis = RedisServer(folder)
    redis.start()
    settings = {"LAM_STORE_URL": redis.url, HANG_VARIABLE: str(folder / "hang")}
    environment = server_environment({**measured, **traces.environment, **FLEET_ENVIRONMENT, **settings}, *faults)
    server = start(folder / "fleet.log", (*SERVE, MODEL, *FLEET_ARGUMENTS, *traces.arguments), None, environment)
    try:
        running = Fleet(server, redis, folder / "hang")
        running.wait_until_ready()
        yield running
    finally:
        server.stop()
        redis.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that end a server of the whole run come after all others."""
    items.sort(key=lambda item: item.path.name == "test_shutdown.py")
