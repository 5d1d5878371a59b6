"""What group H sends, and what it counts."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from lam_vllm.errors import EncoderError
from lam_vllm.serving.box import RequestBox
from tests.serving.fakes import RefusedError, Server

from .agent import MODULE, OTHER, agent

REPEATED = agent(MODULE, OTHER, MODULE)


class BusyEncoder:
    """An encoder that is at work until it is released, and notes in which threads."""

    fingerprint, name, dimension, window_tokens, threshold_cos = "busy", "busy", 2, 510, 0.95

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        self.threads: set[int] = set()

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return [(place, place + 1) for place in range(len(text))]

    def encode(self, text: str) -> Any:
        self.threads.add(threading.get_ident())
        self.begun.set()
        self.wait()
        raise EncoderError("released")

    def wait(self) -> None:
        """Be at work; at most 10 seconds in all, so that a test of what waits fails and does not hang."""
        self.release.wait(10)
        self.release.set()


def ask(server: Server, messages: Any, box: RequestBox | None = None, **fields: Any) -> Any:
    """What reached the renderer."""
    return asyncio.run(server.ask(messages, box, **fields))


def every_outcome(server: Server, number: int) -> None:
    """One request of each outcome that a client can bring about, in which names and texts differ by `number`."""
    own = [
        {"role": "user", "content": f"visitor {number}"},
        *agent(MODULE, f"{number}\n{OTHER}", MODULE, tool=f"t{number}"),
    ]
    names: dict[str, Any] = {
        "user": f"u{number}",
        "session_id": f"s{number}",
        "model": f"m{number}",
        "cache_salt": f"c{number}",
    }
    ask(server, own, RequestBox(api="responses"), **names)  # changed
    ask(server, own[:5], RequestBox(api="messages"), **names)  # unchanged
    ask(server, own[:1], **names)  # unchanged, no tool result
    ask(server, own, lam="observe", **names)
    ask(server, own, lam=False, **names)  # passed through
    ask(server, own, truncate_prompt_tokens=10, **names)  # passed through
    ask(server, own, RequestBox(api="tokenize", authorized=False), **names)  # passed through
    with pytest.raises(RefusedError):
        ask(server, own, lam={f"option_{number}": number}, **names)


def labels(server: Server) -> set[tuple[str, str]]:
    """Names and values of every label of every sample, bounds of buckets aside."""
    return {
        label
        for family in server.registry.collect()
        for sample in family.samples
        for label in sample.labels.items()
        if label[0] != "le"
    }


def counted(server: Server) -> dict[str, float]:
    return server.service.metrics.counts("requests")
