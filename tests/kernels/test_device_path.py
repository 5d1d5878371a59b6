"""The whole device path with the kernels' own code, run by the CPU: tensor, DLPack, kernel, and the host's copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.codec import encode, encode_on
from lam_vllm.encoders.base import BatchEncoder, Traits, traits_of
from lam_vllm.encoders.sentence_transformer import SentenceTransformerEncoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.encoder_variants import packaged_folder
from lam_vllm.ops import launches, reference
from lam_vllm.ops.on_device import DeviceArrays
from lam_vllm.types import Embedding
from tests.kernels.on_host import OnHost

TEXTS = ("read the file", "a line of a listing\n" * 40, "error: no such file")


class Kernels(ModuleType):
    """What `ops.cuda` is to CuPy's device, for a device that the CPU plays."""

    def __init__(self, device: OnHost) -> None:
        super().__init__("kernels")
        self.l2_distances = partial(launches.l2_distances, device)
        self.encode_fixed = partial(launches.encode_fixed, device)
        self._device = device

    def band_digests(self, rows: Embedding, eps: float, width: int) -> Any:
        return launches.quantize_bands(self._device, rows, eps, width, with_quanta=False).digests


@pytest.fixture
def on_device(device: OnHost) -> SentenceTransformerEncoder:
    """The encoder, whose rows stay on the device that the CPU plays."""
    traits = Traits(arrays=DeviceArrays(np, Kernels(device), np.array))
    return SentenceTransformerEncoder(packaged_folder(), "minilm", 0.95, traits)


def test_what_the_encoder_made_is_quantised_verified_and_encoded_where_it_lies(
    on_device: SentenceTransformerEncoder, device: OnHost
) -> None:
    arrays = on_device.traits.arrays
    assert isinstance(arrays, DeviceArrays)
    rows = on_device.encode_batch(TEXTS, on_device.passes()[-1])
    query, eps = on_device.encode(TEXTS[0]), 0.0026
    assert arrays.l2_distances(rows, query).tobytes() == reference.l2_distances(rows, query).tobytes()
    assert arrays.band_digests(rows, 0.01, 4).tobytes() == reference.band_digests(rows, 0.01, 4).tobytes()
    assert encode_on(arrays, rows, eps) == encode(rows, eps, "fixed")
    assert device.launched == ["l2_verify", "quantize_bands", "codec_encode"]


def test_a_run_is_compacted_as_by_numpy(
    on_device: SentenceTransformerEncoder,
    device: OnHost,
    encoder: BatchEncoder,
    six_runs: list[Run],
    count_tokens: Callable[[str], int],
) -> None:
    (messages,) = (list(run.messages) for run in six_runs if run.id == "taubench_airline/7/0")
    config = CompactorConfig(profile="paper", search="banded")
    answers = [Compactor(config, count_tokens, each).compact(messages) for each in (on_device, encoder)]
    assert answers[0].messages == answers[1].messages
    assert {"l2_verify", "quantize_bands"} <= set(device.launched)
    assert traits_of(encoder).arrays is not on_device.traits.arrays
