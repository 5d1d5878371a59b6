"""Time of the installed hook on a server that has the plugin and does not use it.

The request is vLLM's own object, the messages are a recorded run, and what the hook calls is a coroutine that returns
at once: its few hundred nanoseconds are counted as the hook's.
"""

from __future__ import annotations

import asyncio
from statistics import median
from time import process_time_ns
from typing import Any

import numpy as np
from corpus_data import corpus_runs
from prometheus_client import CollectorRegistry

from lam_vllm import CompactorConfig
from lam_vllm.compactors import Compactors
from lam_vllm.metrics import Metrics
from lam_vllm.serving.admission import Seam
from lam_vllm.serving.box import RequestBox, current_box
from lam_vllm.serving.hook import install
from lam_vllm.serving.options import Options
from lam_vllm.serving.service import build_service
from lam_vllm.serving.settings import Settings
from lam_vllm.serving.work import Compactions
from lam_vllm.types import Embedding

CALLS = 2_000
REPEATS = 5
RUN = "swesmith_samples"


class Renderer:
    """The object that the hook is installed on."""

    async def preprocess_chat(self, request: Any, messages: Any) -> tuple[Any, list[Any]]:  # noqa: ARG002
        return messages, []


class Counted:
    """A tokenizer and an encoder that count their calls."""

    fingerprint, name, dimension, window_tokens, threshold_cos = "counted", "counted", 2, 510, 0.95

    def __init__(self) -> None:
        self.calls = 0

    def count_tokens(self, text: str) -> int:
        self.calls += 1
        return len(text.split())

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        self.calls += 1
        return [(place, place + 1) for place in range(len(text))]

    def encode(self, text: str) -> Embedding:  # noqa: ARG002
        self.calls += 1
        return np.array([1.0, 0.0], dtype=np.float32)


def disabled_hook_us() -> float:
    """CPU microseconds of a call with the plugin loaded and not enabled: the median of five rounds' medians."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    messages = list(corpus_runs([RUN], 1)[0].messages)
    counted, renderer = Counted(), Renderer()
    service = build_service(
        Settings(Options("off", CompactorConfig(profile="guarded"), True)),
        key=bytes(32),
        metrics=Metrics(CollectorRegistry()),
        compactors=Compactions(Compactors(counted.count_tokens, counted, "counted")),
        vllm_version="0.32.0",
        seam=Seam(reject=lambda error: error, has_media=lambda _: False),
    )
    install(renderer, service.admission)
    chat = [{**message, "tool_call_id": "call"} if message["role"] == "tool" else message for message in messages]
    request = ChatCompletionRequest(model="served", messages=chat, stream=True, max_completion_tokens=512)
    enabled = ChatCompletionRequest(model="served", messages=chat, lam=True)
    try:
        return asyncio.run(_rounds(renderer, counted, request, enabled, messages))
    finally:
        service.pool.close()


async def _rounds(renderer: Renderer, counted: Counted, request: Any, enabled: Any, messages: list[Any]) -> float:
    current_box.set(RequestBox())
    counted.calls = 0
    medians = [await _median_ns(renderer, request, messages) for _ in range(REPEATS)]
    assert counted.calls == 0, "a disabled plugin called the tokenizer or the encoder"
    await renderer.preprocess_chat(enabled, messages)
    assert counted.calls > 0, "the counter does not count"
    return median(medians) / 1e3


async def _median_ns(renderer: Renderer, request: Any, messages: list[Any]) -> float:
    spent = []
    for _ in range(CALLS):
        began = process_time_ns()
        await renderer.preprocess_chat(request, messages)
        spent.append(process_time_ns() - began)
    return median(spent)
