"""Stand-ins for vLLM at the one seam where the plugin touches it; everything else in these tests is the real thing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
from fastapi import FastAPI, HTTPException
from prometheus_client import CollectorRegistry

from lam_vllm.compactors import Compactors
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import OptionError
from lam_vllm.metrics import Metrics
from lam_vllm.serving.admission import Seam
from lam_vllm.serving.box import RequestBox, current_box
from lam_vllm.serving.encoder_settings import EncoderSettings
from lam_vllm.serving.hook import install
from lam_vllm.serving.limits import Limits
from lam_vllm.serving.options import Mode, Options
from lam_vllm.serving.prompt_tokens import PromptTokens
from lam_vllm.serving.rollout import Rollout
from lam_vllm.serving.routes import make_router
from lam_vllm.serving.service import Alone, Service, build_service
from lam_vllm.serving.settings import Settings
from lam_vllm.serving.work import Compactions
from lam_vllm.stores import StoreSettings
from lam_vllm.types import Message
from lam_vllm.worker import WorkerClient

KEY = b"sixteen bytes or more, the same in every test"
TEXT = "\n".join(f"line {number} of a long listing, the same each time" for number in range(40))


def agent_messages(*results: str) -> list[Message]:
    """A conversation in which a tool returned these results, one after the other."""
    messages: list[Message] = [{"role": "user", "content": "go"}]
    for number, result in enumerate(results):
        messages += [
            {"role": "assistant", "content": f"call {number}"},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
        ]
    return messages


class RefusedError(Exception):
    """Stands for vLLM's validation error."""


class Renderer:
    """Renders messages as vLLM does, as far as the hook can see: it is awaited, and returns token ids."""

    def __init__(self) -> None:
        self.rendered: list[Any] = []

    async def preprocess_chat(
        self, request: Any, messages: Any, default_template: Any = None, *, skip_mm_cache: bool = False
    ) -> tuple[list[Any], list[Any]]:
        self.rendered.append(messages)
        text = " ".join(str(message.get("content")) for message in messages)
        return [], [{"prompt_token_ids": list(range(len(text.split())))}]


def count_words(text: str) -> int:
    return len(text.split())


def with_client(server: Server, use: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """Run `use` with a client of the server's own routes, under /v1/lam."""

    async def run() -> None:
        transport = httpx.ASGITransport(server.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://server/v1/lam") as client:
            async with asyncio.timeout(60):  # so that what should not wait for ever fails
                await use(client)

    asyncio.run(run())


@dataclass
class Server:
    """One hooked renderer and the service behind it; with `standalone` a service that has no renderer beside it."""

    mode: Mode = "on"
    config: CompactorConfig = field(default_factory=lambda: CompactorConfig(profile="exact"))
    encoder: Encoder | None = None
    harmony: bool = False
    audit_rate: float = 0.0
    client: WorkerClient | None = None
    standalone: bool = False
    store: StoreSettings = field(default_factory=StoreSettings)
    limits: Limits = field(default_factory=Limits)
    rollout: Rollout = field(default_factory=Rollout)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.renderer = Renderer()
        self.box = RequestBox()
        self.service: Service = build_service(
            Settings(
                Options(self.mode, self.config, True),
                EncoderSettings(audit_rate=self.audit_rate),
                self.store,
                self.limits,
                self.rollout,
            ),
            key=KEY,
            metrics=Metrics(self.registry),
            compactors=Compactions(Compactors(count_words, self.encoder, "words"), self.client),
            seam=Seam(reject=self._reject, has_media=lambda _messages: False, harmony=self.harmony),
            vllm_version=None if self.standalone else "0.32.0",
            alone=Alone(PromptTokens(count_words)) if self.standalone else None,
        )
        install(self.renderer, self.service.admission)

    def app(self) -> FastAPI:
        """An application with the routes of the plugin."""
        app = FastAPI()
        app.include_router(make_router())
        app.state.lam = self.service
        return app

    def _reject(self, error: OptionError) -> Exception:
        return HTTPException(400, str(error)) if self.standalone else RefusedError(str(error))

    async def ask(self, messages: Any, box: RequestBox | None = None, **fields: Any) -> Any:
        """What reached the renderer for a request with these fields."""
        self.box = box or RequestBox()
        token = current_box.set(self.box)
        try:
            await self.renderer.preprocess_chat(SimpleNamespace(**fields), messages)
            await self.service.admission.ended()
        finally:
            current_box.reset(token)
        return self.renderer.rendered[-1]

    def counted(self, outcome: str, reason: str) -> float:
        """How many requests were counted so."""
        return sum(
            self.registry.get_sample_value("lam:requests_total", {"api": api, "outcome": outcome, "reason": reason})
            or 0.0
            for api in ("chat", "responses", "messages", "tokenize")
        )
