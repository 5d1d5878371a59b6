from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lam_vllm.errors import UnsupportedServerError
from lam_vllm.serving.plugin import check_server
from tests.serving.fakes import Renderer

ROOT = Path(__file__).parents[2]


def test_import_and_constructor_load_nothing_that_could_fail() -> None:
    code = (
        "import sys; from lam_vllm.serving.plugin import LamPlugin; LamPlugin();"
        "print([name for name in ('vllm', 'fastapi', 'torch', 'prometheus_client') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout.strip() == "[]"


def test_a_server_with_everything_in_place_passes() -> None:
    renderer = Renderer()
    state = SimpleNamespace(openai_serving_chat=SimpleNamespace(online_renderer=renderer), serving_tokenization=None)
    check_server("0.32.7", state, renderer)


class OtherOrder(Renderer):
    async def preprocess_chat(self, messages: Any, request: Any) -> Any:  # type: ignore[override]
        return None


class NotAwaited(Renderer):
    def preprocess_chat(self, request: Any, messages: Any) -> Any:  # type: ignore[override]
        return None


@pytest.mark.parametrize(
    ("version", "renderer", "why"),
    [
        ("0.33.0", Renderer(), "0.33.0 is not supported; supported: 0.32.x"),
        ("0.32.0", object(), "object.preprocess_chat does not exist"),
        ("0.32.0", OtherOrder(), "does not begin with request, messages"),
        ("0.32.0", NotAwaited(), "is not a coroutine function"),
    ],
)
def test_a_server_that_cannot_be_hooked_is_refused_with_the_reason(version: str, renderer: Any, why: str) -> None:
    with pytest.raises(UnsupportedServerError, match=why):
        check_server(version, SimpleNamespace(), renderer)


def test_an_api_with_a_renderer_of_its_own_is_refused() -> None:
    state = SimpleNamespace(openai_serving_responses=SimpleNamespace(online_renderer=Renderer()))
    with pytest.raises(UnsupportedServerError, match="openai_serving_responses"):
        check_server("0.32.0", state, Renderer())
