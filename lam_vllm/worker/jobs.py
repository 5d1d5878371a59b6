"""What a server and its worker process say to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lam_vllm.compactors import MEMO_BYTES
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.stores import StoreSettings
from lam_vllm.tokens import PortableTokenizer
from lam_vllm.types import Decision, Message, Report, Work

HEARTBEAT_SECONDS = 5.0
"""A worker gives a sign of life so often."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is started with. `threads` encode; `cpus` are the cores of the process, None for any.

    `store` is where embeddings are shared with processes of the same `key`: with none, where it is this memory.
    `memo_bytes` is the cap of the memo of prefixes and of the memo of embeddings, each.
    """

    encoder: str
    tokenizer: PortableTokenizer
    tokenizer_name: str
    threads: int = 1
    cpus: frozenset[int] | None = None
    store: StoreSettings | None = field(default=None, repr=False)  # its URL may hold a password
    key: bytes = field(default=b"", repr=False)
    memo_bytes: int = MEMO_BYTES


@dataclass(frozen=True, slots=True)
class EncoderFacts:
    """The encoder of a worker that is ready, as others may know it. `process` is the worker's id."""

    name: str
    fingerprint: str
    dimension: int
    window_tokens: int
    threshold_cos: float
    fast: FastPass
    threads: int
    process: int


@dataclass(frozen=True, slots=True)
class Compact:
    """Compact these messages, which are portable: see `messages.portable`."""

    config: CompactorConfig
    messages: list[Message]
    salt: str
    use_memo: bool = True
    canonical: bool = False


@dataclass(frozen=True, slots=True)
class Warm:
    """Have the embeddings ready that compacting these messages, or one tool result with this text, will need."""

    config: CompactorConfig
    messages: list[Message] | None
    text: str | None
    salt: str


Job: TypeAlias = Compact | Warm
Changes: TypeAlias = Sequence[tuple[int, dict[int | None, str]]]
"""Texts that became others: by index of the message, and in it by part (None: the content is a string)."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The answer to `Compact`."""

    changes: Changes
    decisions: tuple[Decision, ...]
    report: Report


@dataclass(frozen=True, slots=True)
class Warmed:
    """The answer to `Warm`."""

    work: Work


@dataclass(frozen=True, slots=True)
class Failure:
    """The job raised. Errors do not travel themselves: not every one can be made again from its message."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a worker holds in its memos and its store, and how many batches it encoded so far.

    `batch_seconds` is how long the oldest batch in hand has been so; `store_errors` is what the store lost so far.
    """

    prefix_bytes: int = 0
    embedding_bytes: int = 0
    batches: int = 0
    batch_seconds: float = 0.0
    store_bytes: int = 0
    store_errors: int = 0
