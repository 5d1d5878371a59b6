"""What a server and its worker process say to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lam_vllm.compactors import MEMO_BYTES
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.device import Kind, Wanted
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.index import Found
from lam_vllm.stores import StoreSettings
from lam_vllm.tokens import PortableTokenizer
from lam_vllm.types import Decision, Message, Report, Work

HEARTBEAT_SECONDS = 5.0
"""A worker gives a sign of life so often."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is started with. `threads` encode; `cpus` are the cores of the process, None for any.

    `store` is where embeddings and indexes are shared with processes of the same `key`. Where it is this memory, or
    none is named, embeddings are with nobody, and indexes with the worker alone.
    `memo_bytes` is the cap of the memo of prefixes and of the memo of embeddings, each. `device` is where to encode;
    `device_reason` says why, where that was settled before: by a worker that was there before this one.
    """

    encoder: str
    tokenizer: PortableTokenizer
    tokenizer_name: str
    threads: int = 1
    cpus: frozenset[int] | None = None
    store: StoreSettings | None = field(default=None, repr=False)  # its URL may hold a password
    key: bytes = field(default=b"", repr=False)
    memo_bytes: int = MEMO_BYTES
    device: Wanted = "auto"
    device_reason: str = ""


@dataclass(frozen=True, slots=True)
class EncoderFacts:
    """The encoder of a worker that is ready, as others may know it. `process` is the worker's id.

    `device_reason` says in words why it runs on `device`; `basis` is what `search: pruned` needs.
    """

    name: str
    fingerprint: str
    dimension: int
    window_tokens: int
    threshold_cos: float
    fast: FastPass
    threads: int
    process: int
    basis: str | None = None
    device: Kind = "cpu"
    device_reason: str = ""


@dataclass(frozen=True, slots=True)
class Compact:
    """Compact these messages, which are portable: see `messages.portable`. With `index`, they can be searched later."""

    config: CompactorConfig
    messages: list[Message]
    salt: str
    use_memo: bool = True
    canonical: bool = False
    index: bool = False


@dataclass(frozen=True, slots=True)
class Warm:
    """Have the embeddings ready that compacting these messages, or one tool result with this text, will need."""

    config: CompactorConfig
    messages: list[Message] | None
    text: str | None
    salt: str


@dataclass(frozen=True, slots=True)
class Search:
    """The `k` windows nearest to the query in a conversation prefix.

    With `messages`, which are portable, the prefix that they are, compacted as a request would be; else the one that
    `prefix_digest` names, if it is kept (`config` says nothing then). Of a long query the first window counts.
    """

    config: CompactorConfig
    messages: list[Message] | None
    prefix_digest: str | None
    query: str
    k: int
    salt: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete every index under this salt, those that wait to be written too, and whatever the store keeps for it.

    What a request leaves that is under way meanwhile is kept; so are embeddings that just wait to be written.
    """

    salt: str


Job: TypeAlias = Compact | Warm | Search | Forget
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
class Searched:
    """The answer to `Search`; None where no index is kept under the digest and the salt."""

    found: Found | None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The answer to `Forget`."""


Answer: TypeAlias = Compacted | Warmed | Searched | Forgotten


@dataclass(frozen=True, slots=True)
class Failure:
    """The job raised. Errors do not travel themselves: not every one can be made again from its message."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a worker holds in its memos and its store, and how many batches it encoded so far.

    `batch_seconds` is how long the oldest batch in hand has been so; `store_errors` is what the store of embeddings
    lost so far, `index_errors` what was lost of indexes.
    """

    prefix_bytes: int = 0
    embedding_bytes: int = 0
    batches: int = 0
    batch_seconds: float = 0.0
    store_bytes: int = 0
    store_errors: int = 0
    index_bytes: int = 0
    index_errors: int = 0
