"""The device path of the real encoder, its torch on the CPU: tensors stay, rows are handed over, the host gets copies.

A GPU differs by where the tensors are, and by the module that takes them over: see `test_on_device`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import BatchEncoder, Traits, traits_of
from lam_vllm.encoders.device import choose_device
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.sentence_transformer import SentenceTransformerEncoder
from lam_vllm.encoders.torch_settings import canonical_torch
from lam_vllm.encoders.two_pass import FastPass, band_around, encode_all, measure_band
from lam_vllm.encoders.unit import unit, unit_tensor
from lam_vllm.errors import EncoderError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.encoder_variants import packaged_folder
from lam_vllm.ops.arrays import HOST
from lam_vllm.ops.on_device import DeviceArrays
from tests.core.test_on_device import Noting

TEXTS = ("read the file", "a line of a listing\n" * 40, "error: no such file")


class Handed(DeviceArrays):
    """Keeps the tensors that were handed over, and counts the host arrays that were found there, and those sent."""

    def __init__(self, noting: Noting) -> None:
        super().__init__(np, noting, np.array)
        self.tensors: list[torch.Tensor] = []
        self.found: Counter[bool] = Counter()

    def received(self, tensor: torch.Tensor) -> Any:
        self.tensors.append(tensor)
        return super().received(tensor)

    def there(self, host: Any) -> Any:
        self.found[self._twins.find(host) is not None] += 1
        return super().there(host)


@pytest.fixture(scope="module")
def noting() -> Noting:
    return Noting()


@pytest.fixture(scope="module")
def on_device(noting: Noting) -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(packaged_folder(), "minilm", 0.95, Traits(arrays=Handed(noting)))


def arrays_of(encoder: BatchEncoder) -> Handed:
    arrays = traits_of(encoder).arrays
    assert isinstance(arrays, Handed)
    return arrays


def test_the_output_stays_a_tensor_and_its_memory_is_what_operations_see(
    on_device: SentenceTransformerEncoder,
) -> None:
    for way in on_device.passes():
        rows = on_device.encode_batch(TEXTS, way)
        tensor = arrays_of(on_device).tensors[-1]
        assert rows.shape == (3, 384) and rows.dtype == np.float32 and tensor.dtype == torch.float32
        assert np.shares_memory(arrays_of(on_device).there(rows), tensor.numpy())
        assert not np.shares_memory(rows, tensor.numpy())


def test_rows_are_those_of_the_host_to_the_last_place(
    on_device: SentenceTransformerEncoder, encoder: BatchEncoder
) -> None:
    for way in on_device.passes():
        here, there = encoder.encode_batch(TEXTS, way), on_device.encode_batch(TEXTS, way)
        assert np.abs(here.astype(np.float64) - there).max() <= 2.0**-24
    alone = on_device.encode(TEXTS[1])
    assert alone.shape == (384,) and alone.base is None
    assert alone.tobytes() == on_device.encode(TEXTS[1]).tobytes()


def test_what_is_no_unit_vector_is_refused_there_as_here() -> None:
    rows = torch.eye(3)
    assert unit_tensor(rows, "e").tolist() == rows.tolist()
    for wrong in (float("nan"), 1.1):
        rows[1, 1] = wrong
        with pytest.raises(EncoderError, match=f"encoder 'e' returned a vector of norm {wrong:.1f}") as there:
            unit_tensor(rows, "e")
        with pytest.raises(EncoderError, match="norm") as here:
            unit(rows[1].numpy(), "e")
        assert str(there.value)[:40] == str(here.value)[:40]


def test_a_text_that_does_not_get_the_same_bits_twice_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lam_vllm.encoders.sentence_transformer.unit", lambda *_: np.random.default_rng().random(384))
    with pytest.raises(EncoderError, match="'minilm': a text does not get the same embedding twice on cpu"):
        SentenceTransformerEncoder(packaged_folder(), "minilm", 0.95)


@contextmanager
def pool_of(encoder: BatchEncoder, texts: list[str]) -> Iterator[EncoderPool]:
    way = encoder.passes()[-1]
    pool = EncoderPool(encoder, FastPass(way, band_around(measure_band(encoder, way, texts)), {}, "made"))
    try:
        yield pool
    finally:
        pool.close()


def test_a_run_is_decided_as_on_the_host_and_verified_where_the_rows_are(
    on_device: SentenceTransformerEncoder,
    encoder: BatchEncoder,
    six_runs: list[Run],
    count_tokens: Callable[[str], int],
) -> None:
    (messages,) = (list(run.messages) for run in six_runs if run.id == "taubench_airline/7/0")
    sample = [str(message["content"])[:900] for message in messages if message["role"] == "tool"][:4]
    arrays_of(on_device).found.clear()
    with pool_of(on_device, sample) as there, pool_of(encoder, sample) as here:
        config = CompactorConfig(profile="paper", search="banded")  # decides by canonical embeddings alone
        answers = [Compactor(config, count_tokens, pool).compact(messages) for pool in (there, here)]
        assert answers[0].messages == answers[1].messages
        assert there.traits.arrays is arrays_of(on_device)
    assert any(decision.layer == "l1" for decision in answers[0].decisions)
    assert arrays_of(on_device).found[True] > 0, "queries are not sent back to where they come from"


def torch_state() -> tuple[Any, ...]:
    return (
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.allow_tf32,
    )


def test_the_settings_for_cuda_hold_while_anybody_is_inside_and_are_put_back() -> None:
    before = torch_state()
    with canonical_torch():
        assert torch_state() == ("highest", *before[1:]), "the CPU needs no more"
        with canonical_torch(cuda=True):
            assert torch_state() == ("highest", True, True, False)
        with canonical_torch(cuda=True):
            assert torch_state() == ("highest", True, True, False)
    assert torch_state() == before
    torch.backends.cudnn.allow_tf32 = False
    try:
        with canonical_torch(cuda=True):
            pass
        assert torch_state() == (*before[:3], False)
    finally:
        torch.backends.cudnn.allow_tf32 = before[3]


def test_a_row_stays_there_when_its_batch_is_gone(on_device: SentenceTransformerEncoder) -> None:
    arrays, way = arrays_of(on_device), on_device.passes()[-1]
    rows = on_device.encode_batch(TEXTS, way)
    row = arrays.alone(rows, 1)
    del rows
    assert arrays.there(row).tobytes() == row.tobytes()


def test_on_a_gpu_the_embeddings_are_nearly_those_of_the_cpu_and_the_operations_have_the_bits_of_numpy(
    encoder: BatchEncoder,
) -> None:
    device = choose_device("auto")
    if device.kind != "cuda":
        pytest.skip(f"needs a GPU that can be used: {device.reason}")
    there = load_encoder("minilm", device="cuda")
    assert there.fingerprint != encoder.fingerprint
    here = np.stack([encoder.encode(text) for text in TEXTS]).astype(np.float64)
    for way in there.passes():
        rows = encode_all(there, way, TEXTS)
        cosines = (rows.astype(np.float64) * here).sum(axis=1)
        assert cosines.min() > (1 - 1e-5 if way.precision == "fp32" else 0.999)
    arrays, query = traits_of(there).arrays, there.encode(TEXTS[0])
    assert query.tobytes() == there.encode(TEXTS[0]).tobytes()
    assert arrays.l2_distances(rows, query).tobytes() == HOST.l2_distances(rows, query).tobytes()
    assert arrays.band_digests(rows, 0.01, 4).tobytes() == HOST.band_digests(rows, 0.01, 4).tobytes()
