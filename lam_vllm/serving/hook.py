"""Putting the admission in front of vLLM's renderer: the only place that replaces anything of vLLM's."""

from __future__ import annotations

import functools
from typing import Any

from lam_vllm.serving.admission import Admission
from lam_vllm.serving.box import RequestBox, current_box
from lam_vllm.serving.tracing import CompactionSpans


def install(renderer: Any, admission: Admission, spans: CompactionSpans | None = None) -> None:
    """Put the hook in front of this renderer's `preprocess_chat`. Twice is the same as once: the newest one decides.

    Where the process traces, each compaction is written to `spans`.
    """
    original = getattr(renderer.preprocess_chat, "lam_original", renderer.preprocess_chat)

    @functools.wraps(original)
    async def preprocess_chat(request: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        plan = await admission.admit(request, messages)
        if spans is not None:
            spans.record(current_box.get() or RequestBox(), request, plan)
        conversation, engine_inputs = await original(request, plan.messages, *args, **kwargs)
        admission.settle(plan, engine_inputs)
        return conversation, engine_inputs

    preprocess_chat.lam_original = original  # type: ignore[attr-defined]
    renderer.preprocess_chat = preprocess_chat


def install_refusal(renderer: Any, admission: Admission) -> None:
    """Reject requests that ask for compaction on a model whose prompts take vLLM's own synchronous path (GPT-OSS)."""
    original = getattr(renderer.adjust_harmony_request, "lam_original", renderer.adjust_harmony_request)

    @functools.wraps(original)
    def adjust_harmony_request(request: Any) -> Any:
        admission.refuse_if_asked(request)
        return original(request)

    adjust_harmony_request.lam_original = original  # type: ignore[attr-defined]
    renderer.adjust_harmony_request = adjust_harmony_request
