"""How long a request may take, and how much is remembered: both cost time when they are small, never bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lam_vllm.compactors import MEMO_BYTES
from lam_vllm.serving.numbers import integer_setting, number_setting

NAMES = ("time_limit_seconds", "memo_bytes")
TIME_LIMIT_SECONDS = 120.0
LEAST_MEMO_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server process, and of its worker process.

    `time_limit_seconds` is the last resort for one request, its wait included: after it the originals go through,
    counted as `failed_open`. A worker that ends nothing for so long while something waits is replaced. `memo_bytes`
    bounds each memo: of prefixes here and in the worker process, and the worker's of embeddings. One memo of prefixes
    serves all configs.
    """

    time_limit_seconds: float = TIME_LIMIT_SECONDS
    memo_bytes: int = MEMO_BYTES


def read_limits(
    environment: Mapping[str, str], variable: Callable[[str], str], name_of: Callable[[str], str]
) -> Limits:
    """The limits in the variables called `variable(name)`.

    Raises:
        OptionError: a value cannot be what it is; the error names `name_of(name)`.
    """
    given = {name: environment.get(variable(name), "").strip() for name in NAMES}
    return Limits(
        number_setting(
            given["time_limit_seconds"], name_of("time_limit_seconds"), default=TIME_LIMIT_SECONDS, least=1, most=86_400
        ),
        integer_setting(given["memo_bytes"], name_of("memo_bytes"), default=MEMO_BYTES, least=LEAST_MEMO_BYTES),
    )
