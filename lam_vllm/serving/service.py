"""Everything one server process holds, built once at start-up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lam_vllm.compactors import Compactors
from lam_vllm.encoders.base import Encoder
from lam_vllm.encoders.load import DEFAULT_ENCODER
from lam_vllm.errors import EncoderError, OptionError
from lam_vllm.metrics import Metrics
from lam_vllm.pool import Pool
from lam_vllm.records import open_records
from lam_vllm.serving.admission import Admission, Seam
from lam_vllm.serving.prefix_watch import PrefixWatch
from lam_vllm.serving.prompt_tokens import PromptTokens
from lam_vllm.serving.settings import Settings
from lam_vllm.serving.tracing import CompactionSpans
from lam_vllm.serving.warming import Warming
from lam_vllm.serving.work import Compactions, Handler
from lam_vllm.stores.base import KINDS, Kind
from lam_vllm.tokens import PortableTokenizer
from lam_vllm.worker import EncoderFacts, Setup, WorkerClient


@dataclass(frozen=True, slots=True)
class Alone:
    """What stands in for an engine: who counts the tokens of its prompts, and who writes the spans of its requests."""

    prompt_tokens: PromptTokens
    spans: CompactionSpans | None = None


@dataclass(frozen=True)
class Service:
    """The plugin's state on `app.state.lam`: what the routes read and the hook uses.

    `alone` is there where no engine is: in a server that has the routes alone. `processes` share the metrics and the
    switch with this one. `stopping` is set when the server goes down: who only waits shall not be waited for.
    """

    settings: Settings
    admission: Admission
    handler: Handler
    warming: Warming
    pool: Pool
    metrics: Metrics
    vllm_version: str | None
    processes: int = 1
    alone: Alone | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def encoder(self) -> Encoder | EncoderFacts | None:
        """The encoder, or what is known of the worker's, if there is one."""
        return self.handler.compactors.encoder

    def close(self) -> None:
        """Drop work that has not begun, fail what waits for the worker process, end that process, close the store."""
        if self.handler.compactors.client is not None:
            self.handler.compactors.client.close()
        self.pool.close()
        self.handler.records.close()


def build_compactions(
    settings: Settings,
    *,
    key: bytes,
    count_tokens: Callable[[str], int],
    portable: Callable[[], PortableTokenizer],
    tokenizer_name: str,
    metrics: Metrics,
) -> Compactions:
    """Compactors of this process and, where an encoder is named or needed, its worker process, ready.

    `count_tokens` and `portable` are the served model's tokenizer, here and for the other process.

    Raises:
        OptionError: a device is wanted for an encoder that is not there.
        EncoderError: the encoder cannot be loaded, or the tokenizer cannot be given to its process.
    """
    here = Compactors(count_tokens, None, tokenizer_name, settings.limits.memo_bytes)
    encoder, needed = settings.encoder, settings.profiles & {"guarded", "paper"}
    if encoder.name is None and not needed:
        if encoder.device == "cuda":
            raise OptionError("device", "cuda", "auto or cpu, or an encoder beside it: --lam-encoder NAME")
        return Compactions(here)
    name = encoder.name or DEFAULT_ENCODER
    setup = Setup(
        name,
        portable(),
        tokenizer_name,
        encoder.threads,
        encoder.cpus,
        store=settings.store,
        key=key,
        memo_bytes=settings.limits.memo_bytes,
        device=encoder.device,
    )
    try:
        return Compactions(here, _worker(setup, settings, metrics))
    except EncoderError as error:
        if encoder.name is not None:
            raise
        raise EncoderError(
            f"the profile {min(filter(None, needed))!r} needs an encoder; none is named, and the default {name!r} "
            f"cannot be had ({error}): pass --lam-encoder NAME, or use --lam-profile exact"
        ) from error


def _worker(setup: Setup, settings: Settings, metrics: Metrics) -> WorkerClient:
    return WorkerClient(
        setup,
        metrics.worker_restarts.inc,
        on_store_error=metrics.store_errors.labels("embeddings").inc,
        on_index_error=metrics.store_errors.labels("index").inc,
        stuck_seconds=settings.limits.time_limit_seconds,
    )


def build_service(
    settings: Settings,
    *,
    key: bytes,
    metrics: Metrics,
    compactors: Compactions,
    seam: Seam,
    vllm_version: str | None,
    processes: int = 1,
    alone: Alone | None = None,
) -> Service:
    """A service with empty books. `key` names and guards what is kept: ids outlive the process if it does.

    Raises:
        MissingExtraError: a default profile needs an encoder and there is none; or the store needs an extra.
        OptionError: the store cannot be opened.
    """
    records = open_records(settings.store, key, metrics.store_errors.labels("records").inc)
    for store in _kinds(settings, compactors):
        metrics.store_cap_bytes.labels(store).set(settings.store.max_bytes)
    handler = Handler(compactors, PrefixWatch(), records)
    for options in (settings.options, *settings.rollout.models.values()):
        compactors.get(options.config)  # a default that cannot work must stop the server, not a request
    pool = Pool(metrics.queue_depth)
    admission = Admission(settings, handler, pool, metrics, seam)
    warming = Warming(compactors, pool, admission.accounting)
    return Service(settings, admission, handler, warming, pool, metrics, vllm_version, processes, alone)


def _kinds(settings: Settings, compactors: Compactions) -> Sequence[Kind]:
    """What is kept here: embeddings only where they are shared, an index only where something is embedded."""
    if compactors.client is None:
        return ("records",)
    return KINDS if settings.store.url is not None else ("records", "index")
