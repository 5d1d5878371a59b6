"""A server's status as the doctor reads it: what it looks at is of the kind it should be, or the status is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Status: TypeAlias = dict[str, Any]
_PARTS = "^[^/]*/[^/]*/[^/]*$"
"""API, outcome and reason of requests."""
_Counts: TypeAlias = dict[str, float] | None


class _Part(BaseModel):
    """What is not named here is another version's business, and only shown."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Store(_Part):
    bytes: float | None = None
    max_bytes: float | None = None


class _Encoder(_Part):
    restarts: int | None = None


class _Seen(_Part):
    process: int | None = None
    processes: int | None = None
    profile: str | None = None
    store: _Store | None = None
    encoder: _Encoder | None = None
    requests: dict[Annotated[str, Field(pattern=_PARTS)], float] | None = None
    tokens_removed: _Counts = None
    prefix_breaks: _Counts = None
    lookups: _Counts = None
    store_errors: _Counts = None
    guard_band_violations: float | None = None


def problem_of(status: Mapping[str, Any]) -> str:
    """Where the status is not what a server of any version says, and what is wrong there; "" where it is."""
    try:
        _Seen.model_validate(status)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return ".".join(map(str, first["loc"])) + ": " + first["msg"]
    return ""
