"""A real Prometheus on a port of its own: the configuration and the rules of docker/, on a clock that runs faster."""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.docker.monitoring import DOCKER, ROOT, RULES, load
from tests.ports import free_port

START_SECONDS = 60.0
ALERT_SECONDS = 90.0
WINDOW = "20s"
TIME_SHOWN = "90s"
_WINDOWS = {"5m": WINDOW, "15m": "30s", "1h": TIME_SHOWN}
_FOR = "4s"
"""Longer than a scrape: one that comes late on a busy machine makes no alert."""


def shortened(rules: str) -> str:
    """The rules with shorter durations and nothing else changed: every window, and every `for`."""
    windows = re.sub(r"(?<=\[)\d+[smh](?=\])", lambda found: _WINDOWS[found[0]], rules)
    return re.sub(r"(?<=for: )\d+[smh]$", _FOR, windows, flags=re.MULTILINE)


class Prometheus:
    """Scrapes its targets every other second. A context manager, which ends it by its process id."""

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        subprocess.run([ROOT / "scripts/install_debian.sh", "prometheus"], check=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        self._folder = folder
        self._targets = list(targets)
        self._began = time.time()

    def __enter__(self) -> Prometheus:
        self._began = time.time()
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["prometheus", f"--config.file={self._configured()}", f"--storage.tsdb.path={self._folder / 'data'}",
                 f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._client = httpx.Client(base_url=self.url, timeout=30)
        self.wait_for("up == 1", START_SECONDS)
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait()

    def series(self, expression: str) -> list[dict[str, Any]]:
        """Every series of an expression since the start, as far as it has numbers."""
        parameters: dict[str, str | float] = {
            "query": expression,
            "start": self._began,
            "end": time.time() + 1,  # the last of the steps is not before now
            "step": "1s",
        }
        answer = self._client.get("/api/v1/query_range", params=parameters).json()
        assert answer["status"] == "success", answer
        return [series for series in answer["data"]["result"] if any(map(_is_number, series["values"]))]

    def wait_for(self, expression: str, seconds: float = ALERT_SECONDS) -> list[dict[str, Any]]:
        """The series of an expression as soon as there are some now; fails when there are none in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := self._now(expression):
                return found
            time.sleep(0.25)
        log = (self._folder / "prometheus.log").read_text(errors="replace")
        raise AssertionError(f"nothing for {expression} in {seconds:g} s\n{self._now('ALERTS')}\n{log[-2_000:]}")

    @contextmanager
    def fires(self, alert: str, **labels: str) -> Iterator[None]:
        """Inside, the fault is made. On leaving, waits until the alert fires, which it has never done before."""
        assert alert not in self.fired()
        yield
        wanted = {"alertname": alert, "alertstate": "firing", **labels}
        self.wait_for("ALERTS{" + ", ".join(f'{name}="{value}"' for name, value in wanted.items()) + "}")

    def fired(self) -> set[str]:
        """The names of the alerts that have fired since the start."""
        return {series["metric"]["alertname"] for series in self.series('ALERTS{alertstate="firing"}')}

    def _now(self, expression: str) -> list[dict[str, Any]]:
        try:
            answer = self._client.get("/api/v1/query", params={"query": expression}).json()
        except (httpx.TransportError, ValueError):  # it is being started
            return []
        found: list[dict[str, Any]] = answer["data"]["result"] if answer["status"] == "success" else []
        return found

    def _configured(self) -> Path:
        """The configuration of docker/ with these targets in place of its own."""
        (self._folder / "rules").mkdir()
        (self._folder / "rules/lam.yml").write_text(shortened(RULES.read_text(encoding="utf-8")), encoding="utf-8")
        configuration = load(DOCKER / "prometheus/prometheus.yml")
        configuration["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
        (job,) = (each for each in configuration["scrape_configs"] if each["job_name"] == "lam-vllm")
        job["static_configs"] = [{"targets": self._targets}]
        configuration["scrape_configs"] = [job]
        path = self._folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        return path


def _is_number(value: list[Any]) -> bool:
    return math.isfinite(float(value[1]))
