"""What is wrong with a matrix, a bound or a stream."""

from __future__ import annotations

from lam_vllm.errors import LamError

_MOST_SHOWN = 100


class CodecError(LamError, ValueError):
    """Something cannot be encoded, or bytes are not a stream: names the field, its value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field = field
        self.allowed = allowed
        shown = str(value)[:_MOST_SHOWN]  # a value may come from bytes that anyone wrote
        super().__init__(f"{field}: {shown} is not allowed; allowed: {allowed}")
