"""Applications of a test, answering on the loopback interface for as long as the test needs them."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, generate_latest

from tests.serving.fakes import Server

KEY = "sesame"


@contextmanager
def listening(app: Any, server_header: bool = True) -> Iterator[str]:
    """The address of this application."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", lifespan="off", server_header=server_header
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    begun = threading.Event()
    startup = server.startup

    async def announced(sockets: Any = None) -> None:
        await startup(sockets)
        begun.set()

    server.startup = announced  # type: ignore[method-assign]
    thread.start()
    try:
        assert begun.wait(30), "the application did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def with_metrics(server: Server, registry: CollectorRegistry | None = None) -> FastAPI:
    """The plugin's routes and the page of its metrics, as vLLM shows it beside them."""
    app = server.app()

    def metrics() -> Response:
        return Response(generate_latest(registry or server.registry), media_type="text/plain")

    app.add_api_route("/metrics", metrics)
    return app


def guarded_by_key(app: FastAPI) -> FastAPI:
    """The application behind `KEY`, which vLLM asks for under /v1 and nowhere else."""

    async def key(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        known = request.headers.get("authorization") == f"Bearer {KEY}"
        if request.url.path.startswith("/v1") and not known:
            return JSONResponse({"error": "Unauthorized"}, 401)
        return await go_on(request)

    app.middleware("http")(key)
    return app


def vllm_without_plugin() -> FastAPI:
    """What vLLM shows of itself, as far as the doctor asks for it."""
    app = FastAPI()
    app.add_api_route("/version", lambda: {"version": "0.32.0"})
    return app
