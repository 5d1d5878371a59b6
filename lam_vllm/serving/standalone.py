"""The routes and the metrics alone, without an engine: for other engines, and for clients that compact themselves."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

import lam_vllm
from lam_vllm.metrics import Metrics
from lam_vllm.serving.admission import Seam
from lam_vllm.serving.keys import KeyGuard
from lam_vllm.serving.plugin import SWITCH_SECONDS
from lam_vllm.serving.prompt_tokens import PromptTokens
from lam_vllm.serving.routes import make_router
from lam_vllm.serving.service import Alone, Service, build_compactions, build_service
from lam_vllm.serving.settings import Settings
from lam_vllm.serving.tracing import compaction_spans
from lam_vllm.tokens import portable_token_counter

ANSWER_SECONDS = 5.0
"""For the answer of a request that is just over its time limit, when the server goes down."""


def build_standalone(
    settings: Settings, *, key: bytes, tokenizer: str, tokenizer_name: str, metrics: Metrics
) -> Service:
    """The service, its encoder loaded where there is one. `tokenizer` is the served model's `tokenizer.json`, as text.

    Raises:
        EncoderError, MissingExtraError, OptionError: as `build_compactions` and `build_service`.
    """
    count_tokens = portable_token_counter(tokenizer)
    compactors = build_compactions(
        settings,
        key=key,
        count_tokens=count_tokens,
        portable=lambda: tokenizer,
        tokenizer_name=tokenizer_name,
        metrics=metrics,
    )
    return build_service(
        settings,
        key=key,
        metrics=metrics,
        compactors=compactors,
        seam=Seam(reject=lambda error: HTTPException(400, str(error)), has_media=lambda _messages: False),
        vllm_version=None,
        alone=Alone(PromptTokens(count_tokens), compaction_spans()),
    )


def make_app(service: Service, keys: Sequence[str]) -> FastAPI:
    """An application that answers for the service, under /v1 only to who shows one of the keys, if there are any."""
    app = FastAPI(title="lam-vllm", version=lam_vllm.__version__, docs_url=None, redoc_url=None)
    app.include_router(make_router())
    app.add_api_route("/health", health, methods=["GET"], response_model=dict[str, str])
    app.add_route("/metrics", metrics, methods=["GET"])
    if keys:
        app.add_middleware(KeyGuard, keys=keys)
    app.state.lam = service
    return app


async def health() -> dict[str, str]:
    """Whether the server answers. Without its encoder or its store it does, and its metrics tell."""
    return {"status": "ok"}


async def metrics(_request: Request) -> Response:
    """The metrics, in Prometheus's text format whatever is asked for: the client library's other one renames ours."""
    return Response(generate_latest(REGISTRY), headers={"content-type": CONTENT_TYPE_LATEST})


def run(service: Service, *, host: str, port: int, keys: Sequence[str]) -> None:
    """Serve until SIGTERM or SIGINT; then answer what is under way, and return.

    Exits with code 1 when nothing can be served at `host` and `port`, with 0 at SIGTERM.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
    patience = service.settings.limits.time_limit_seconds + ANSWER_SECONDS
    config = uvicorn.Config(
        make_app(service, keys), host=host, port=port, timeout_graceful_shutdown=round(patience), access_log=False
    )
    # The server ends itself by the signal that it was given, once it has answered: this makes it a success.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _Server(config, service.stopping.set).run()


class _Server(uvicorn.Server):
    """Says when it begins to go down: who only waits for something shall not be waited for."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    async def shutdown(self, sockets: Any = None) -> None:
        """Go down."""
        self._on_stop()
        await super().shutdown(sockets)
