"""Dockerfiles, the compose file and the scripts of the image, as far as they can be checked without an engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docker.monitoring import DOCKER, ROOT, load

SCRIPTS = Path(sys.executable).parent
COMPOSE = DOCKER / "compose.yaml"
DOCKERFILES = (DOCKER / "Dockerfile", DOCKER / "Dockerfile.cpu")
KEY = "a key of the tests"


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.name))
def test_the_linter_finds_nothing_in_a_dockerfile(path: Path) -> None:
    done = run(SCRIPTS / "hadolint", path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.name))
def test_an_image_runs_without_root_and_is_checked_where_the_plugin_answers(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == "2000:0"
    assert "healthcheck.py" in text.partition("\nHEALTHCHECK ")[2]
    assert "/v1/lam/status" in (DOCKER / "healthcheck.py").read_text(encoding="utf-8")
    assert text.rstrip().endswith('ENTRYPOINT ["lam-entrypoint"]')


def test_the_gpu_image_holds_the_vllm_that_the_plugin_supports() -> None:
    from lam_vllm.serving.plugin import SUPPORTED_VLLM

    (version,) = re.findall(r"^ARG VLLM_VERSION=v(.+)$", DOCKERFILES[0].read_text(encoding="utf-8"), re.MULTILINE)
    assert version.startswith(SUPPORTED_VLLM)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.name))
def test_an_image_asks_for_extras_that_there_are(path: Path) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (extras,) = re.findall(r'"/opt/lam-vllm\[(.+)\]"', path.read_text(encoding="utf-8"))
    assert set(extras.split(",")) <= set(known)


def test_the_cpu_image_takes_the_steps_of_the_set_up() -> None:
    set_up, image = (ROOT / "scripts/setup.sh").read_text(encoding="utf-8"), DOCKERFILES[1].read_text(encoding="utf-8")
    (torch,) = re.findall(r"torch==[0-9.]+\+cpu", set_up)
    assert torch in image
    assert "pip uninstall -y torchvision torchaudio torchcodec" in image


def test_what_the_build_takes_is_enough_for_the_wheel_and_holds_no_keys(tmp_path: Path) -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    taken = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert "*" in lines and "**/__pycache__" in lines
    for name in taken:
        source, target = ROOT / name, tmp_path / "context" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    assert not any(path.startswith("docker/secrets") for path in taken)
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    done = run(*build, tmp_path / "context")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("lam_vllm-*.whl"))
    copied = {
        word for path in DOCKERFILES for word in re.findall(r"/opt/lam-vllm/(\S+)", path.read_text(encoding="utf-8"))
    }
    assert copied <= set(taken)


def test_the_compose_file_is_one() -> None:
    done = run(SCRIPTS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_that_the_compose_file_mounts_or_builds_is_there() -> None:
    compose = load(COMPOSE)
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DOCKER / source).exists() if source.startswith(".") else source in compose["volumes"]
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        assert set(service.get("networks", ())) <= set(compose["networks"])
        if "build" in service:
            assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_keys_come_from_files_and_no_port_is_open_to_the_network() -> None:
    compose = load(COMPOSE)
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert not [name for name in service.get("environment", {}) if name.endswith(("KEY", "PASSWORD"))]
    assert all(secret["file"].startswith("secrets/") for secret in compose["secrets"].values())
    assert "secrets/" in (DOCKER / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_keys_that_the_page_makes_end_in_no_newline(tmp_path: Path) -> None:
    """Kubernetes hands a secret on as it is: a newline at its end would be part of a key that no client can send."""
    page = (DOCKER / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    (for key in .*; done)$", page, re.MULTILINE)
    names = {secret["file"].removeprefix("secrets/") for secret in load(COMPOSE)["secrets"].values()}
    if shutil.which("openssl") is None:
        assert "openssl rand -hex 32 | tr -d '\\n' > $key;" in line
        return
    done = subprocess.run(["sh", "-euc", line], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    made = {path.name: path for path in tmp_path.iterdir()}
    assert set(made) == names
    assert all(re.fullmatch(rb"[0-9a-f]{64}", path.read_bytes()) for path in made.values())
    assert {path.stat().st_mode & 0o777 for path in made.values()} == {0o400}
    assert len({path.read_bytes() for path in made.values()}) == len(made)


def test_prometheus_scrapes_the_server_of_the_compose_file() -> None:
    jobs = {job["job_name"]: job for job in load(DOCKER / "prometheus/prometheus.yml")["scrape_configs"]}
    (target,) = jobs["lam-vllm"]["static_configs"][0]["targets"]
    assert target.partition(":")[0] in load(COMPOSE)["services"]
    assert target.partition(":")[2] in re.findall(r"^EXPOSE (\d+)$", DOCKERFILES[0].read_text(), re.MULTILINE)


def test_the_start_takes_the_key_out_of_its_file(tmp_path: Path) -> None:
    stand_in = tmp_path / "lam-vllm"
    stand_in.write_text('#!/bin/sh\necho "$VLLM_API_KEY|$*"\n')
    stand_in.chmod(0o700)
    (tmp_path / "key").write_text(KEY + "\n")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    entrypoint = DOCKER / "entrypoint.sh"
    done = run("sh", entrypoint, "a model", "--flag", PATH=path, VLLM_API_KEY_FILE=str(tmp_path / "key"))
    assert done.stdout == f"{KEY}|serve a model --flag\n"
    assert run("sh", entrypoint, "m", PATH=path, VLLM_API_KEY="given").stdout == "given|serve m\n"


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_no_server_is_started_without_the_key_that_was_meant(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "lam-vllm").symlink_to("/bin/true")
    if content is not None:
        (tmp_path / "key").write_text(content)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = run("sh", DOCKER / "entrypoint.sh", "m", PATH=path, VLLM_API_KEY_FILE=str(tmp_path / "key"))
    assert done.returncode != 0
    assert str(tmp_path / "key") in done.stderr


class _Status(BaseHTTPRequestHandler):
    """A server that wants `KEY` and answers what its server object says."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == f"Bearer {KEY}" and self.path == "/v1/lam/status"
        answer: bytes = self.server.answer  # type: ignore[attr-defined]
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Status) as listening:
        listening.answer = b'{"algorithm": 1}'  # type: ignore[attr-defined]
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


def check(server: ThreadingHTTPServer, **environment: str) -> subprocess.CompletedProcess[str]:
    url = f"http://127.0.0.1:{server.server_port}"
    return run(sys.executable, DOCKER / "healthcheck.py", LAM_HEALTH_URL=url, **environment)


def test_the_health_check_shows_the_key_of_the_environment_or_of_its_file(
    server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    assert check(server, VLLM_API_KEY=KEY).returncode == 0
    assert check(server, VLLM_API_KEY_FILE=str(tmp_path / "key")).returncode == 0


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({}, "401"), ({"VLLM_API_KEY": "wrong"}, "401"), ({"VLLM_API_KEY_FILE": "/nowhere"}, "/nowhere")],
)
def test_the_health_check_fails_without_the_right_key(
    server: ThreadingHTTPServer, environment: dict[str, str], reason: str
) -> None:
    done = check(server, **environment)
    assert done.returncode == 1 and reason in done.stderr


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"status": "ok"}'])
def test_a_server_without_the_plugin_is_not_well(server: ThreadingHTTPServer, answer: bytes) -> None:
    server.answer = answer  # type: ignore[attr-defined]
    assert check(server, VLLM_API_KEY=KEY).returncode == 1


def test_nothing_that_listens_is_not_well() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Status) as closed:
        pass
    done = check(closed, VLLM_API_KEY=KEY)
    assert done.returncode == 1 and "/v1/lam/status" in done.stderr
