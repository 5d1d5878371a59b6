"""The error of a baseline that cannot run here."""

from __future__ import annotations

from lam_vllm.errors import LamError


class BaselineUnavailableError(LamError, RuntimeError):
    """What a baseline needs is not here: weights, a server. Says what; tables print it in place of figures."""
