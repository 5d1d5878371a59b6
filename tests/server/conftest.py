"""Real vLLM servers on the CPU for the whole run: without the plugin, with it and an API key, and of many processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from lam_vllm.encoders import load_encoder
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


def start(
    log: Path, python: Sequence[str], api_key: str | None, environment: Mapping[str, str], port: int | None = None
) -> LiveServer:
    """A server that is starting: `python` and the arguments that every server here gets."""
    port = port or free_port()
    key = [f"--api-key={api_key}"] if api_key else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *python, *VLLM_ARGUMENTS, f"--port={port}", "--host=127.0.0.1", *key],
            env=dict(environment), cwd=log.parent, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    return LiveServer(f"http://127.0.0.1:{port}", api_key, process, log)


class Begun:
    """The servers of the whole run, each started once: at the latest when a test first needs it."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._folder = Path(
            self._ends.enter_context(TemporaryDirectory(prefix="lam-servers-", ignore_cleanup_errors=True))
        )

    def close(self) -> None:
        """End all that was started."""
        self._ends.close()

    @cached_property
    def measured(self) -> dict[str, str]:
        """Variables of a server whose encoder was measured before; vLLM's own cache stays where it is."""
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        config = {"XDG_CONFIG_HOME": str(self._new_folder("config"))}  # nothing that a user calibrated
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", config["XDG_CONFIG_HOME"])
            cache = measured_before(load_encoder("minilm"), self._new_folder("cache"))
        vllm_cache = os.environ.get("VLLM_CACHE_ROOT") or str(usual / "vllm")
        return {**config, "XDG_CACHE_HOME": str(cache), "VLLM_CACHE_ROOT": vllm_cache}

    @cached_property
    def pair(self) -> tuple[LiveServer, LiveServer]:
        """Without the plugin, and with it."""
        folder = self._new_folder("pair")
        faults = install_faults(folder / "faults")
        of_models = folder / "models.yaml"
        of_models.write_text(f"models: {{{OTHER_NAME}: {{enabled: false}}}}\n")
        plain = ("-m", "vllm.entrypoints.openai.api_server", "--model", MODEL)
        settings = ("--lam-profile=exact", "--lam-encoder=minilm", "--lam-threads=1")
        caps = (f"--lam-memo-bytes={MEMO_BYTES}", f"--lam-store-bytes={STORE_BYTES}")
        hooked = (*SERVE, MODEL, *settings, *caps, f"--kv-events-config={json.dumps(KV_EVENTS)}")
        environment = server_environment({**self.measured, "LAM_CONFIG": str(of_models)}, faults)
        return (
            self._start(folder / "plain.log", plain, None, server_environment({})),
            self._start(folder / "hooked.log", hooked, API_KEY, environment),
        )

    @cached_property
    def traces(self) -> TraceReceiver:
        """What the fleet exports as OpenTelemetry spans."""
        return self._ends.enter_context(TraceReceiver())

    @cached_property
    def fleet(self) -> Fleet:
        """Two API processes, two engines, profile `guarded` by default, and a Redis that they share."""
        folder, traces = self._new_folder("fleet"), self.traces
        faults = (install_faults(folder / "faults"), install_hanging_encoder(folder / "hanging"))
        redis = RedisServer(folder)
        redis.start()
        self._ends.callback(redis.stop)
        settings = {"LAM_STORE_URL": redis.url, HANG_VARIABLE: str(folder / "hang")}
        extra = {**self.measured, **traces.environment, **FLEET_ENVIRONMENT, **settings}
        command = (*SERVE, MODEL, *FLEET_ARGUMENTS, *traces.arguments)
        server = self._start(folder / "fleet.log", command, None, server_environment(extra, *faults))
        return Fleet(server, redis, folder / "hang")

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _start(
        self, log: Path, python: Sequence[str], api_key: str | None, environment: Mapping[str, str]
    ) -> LiveServer:
        """A server on a port that is held from now on: vLLM takes its own only after a while, and shares it."""
        held = self._ends.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))  # never listens
        server = start(log, python, api_key, environment, held.getsockname()[1])
        self._ends.callback(server.stop)
        return server


BEGUN = pytest.StashKey[Begun]()


def begun(config: pytest.Config) -> Begun:
    """What this run has begun so far; all of it ends with the run."""
    if BEGUN not in config.stash:
        config.stash[BEGUN] = Begun()
        config.add_cleanup(config.stash[BEGUN].close)
    return config.stash[BEGUN]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Servers start while the tests run that come before theirs: vLLM takes one or two minutes for it."""
    if session.testsfailed or session.config.option.collectonly:
        return
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if "servers" in needed:
        begun(session.config).pair  # noqa: B018 - starts them
    if "fleet" in needed:
        begun(session.config).fleet  # noqa: B018


@pytest.fixture(scope="session")
def measured(pytestconfig: pytest.Config) -> dict[str, str]:
    """Variables of a server whose encoder was measured before."""
    return begun(pytestconfig).measured


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> tuple[LiveServer, LiveServer]:
    """Both servers: without the plugin, and with it."""
    started = begun(pytestconfig).pair
    for server in started:
        server.wait_until_ready()
    return started


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
def traces(pytestconfig: pytest.Config) -> TraceReceiver:
    """What the fleet exports as OpenTelemetry spans."""
    return begun(pytestconfig).traces


@pytest.fixture(scope="session")
def fleet(pytestconfig: pytest.Config) -> Fleet:
    """vLLM with two API processes and two engines, profile `guarded` by default, and a Redis that they share."""
    running = begun(pytestconfig).fleet
    running.wait_until_ready()
    return running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that end a server of the whole run come after all others."""
    items.sort(key=lambda item: item.path.name == "test_shutdown.py")
