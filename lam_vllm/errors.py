"""What can go wrong, one class per kind, each message naming what was given and what is allowed."""

from __future__ import annotations

import reprlib

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 200
"""A value comes from a request and may be of any size and depth; a message shows its beginning and its end."""
_LONGEST_NAME = 200
"""So may the name of an option that does not exist, and it may hold what no answer can be written with."""


class LamError(Exception):
    """Root of every error that this package raises on purpose."""


class OptionError(LamError, ValueError):
    """An option has a value that it cannot have, or a name that does not exist."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field = field[:_LONGEST_NAME].encode("utf-8", "backslashreplace").decode()
        self.value = value
        self.allowed = allowed
        super().__init__(f"{self.field}: {_SHOWN.repr(value)} is not allowed; allowed: {allowed}")


class InputFileError(LamError, ValueError):
    """A file cannot be read as what it should be."""

    def __init__(self, path: object, why: str, line: int | None = None) -> None:
        self.path = str(path)
        self.why = why
        self.line = line
        self.place = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{self.place}: {why}")


class MissingExtraError(LamError, ImportError):
    """A part of the package needs an extra that is not installed."""

    def __init__(self, what: str, extra: str, instead: str = "") -> None:
        self.extra = extra
        hint = f"; or use {instead}" if instead else ""
        super().__init__(f"{what} needs the extra {extra!r}: pip install 'lam-vllm[{extra}]'{hint}")


class EncoderError(LamError, RuntimeError):
    """An encoder cannot be loaded, or returned something that is not unit vectors."""


class EncoderUnreachableError(EncoderError):
    """The server that encodes cannot be reached, or does not answer: no text of any request would be encoded."""


class WorkerLostError(LamError, RuntimeError):
    """The worker process, which holds the encoder, died over a request or is not running."""


class UnsupportedServerError(LamError, RuntimeError):
    """The surrounding vLLM, or the way it is started, is one that the plugin cannot work in."""
