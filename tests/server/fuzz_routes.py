"""Requests to the plugin's routes, right and wrong ones, made from the server's own OpenAPI description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.generation.modes import GenerationMode

from tests.server.fuzzing import Fuzzed

SWITCH = "/v1/lam/enabled"


def described(openapi: Mapping[str, Any], number: int, count: int) -> list[Fuzzed]:
    """`count` requests to paths under /v1/lam, the same for the same description and seed `number`."""
    paths = {path: methods for path, methods in openapi["paths"].items() if path.startswith("/v1/lam")}
    schema: Any = schemathesis.openapi.from_dict({**openapi, "paths": paths})
    operations = [found.ok() for found in schema.get_all_operations()]
    cases = [
        operation.as_strategy(generation_mode=mode)
        for operation in operations
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    ]
    drawn: list[Fuzzed] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(cases))
    def draw(case: Any) -> None:
        drawn.append(_request(f"{number}/{len(drawn)}", case))

    draw()
    return drawn


def _request(name: str, case: Any) -> Fuzzed:
    """The case as it goes over the wire."""
    parts = case.as_transport_kwargs(base_url="http://server")
    content = json.dumps(parts["json"]).encode() if "json" in parts else _bytes(parts.get("data"))
    headers = {"content-type": case.media_type.encode()} if case.media_type else {}
    mode = case.meta.generation.mode.value if case.meta else "any"
    target = parts["url"].removeprefix("http://server")
    return Fuzzed(name, f"described {mode}", case.method.upper(), target, headers, content)


def _bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else str(data or "").encode()
