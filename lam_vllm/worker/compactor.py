"""A compactor whose work is done in the worker process."""

from __future__ import annotations

from collections.abc import Sequence

from lam_vllm.config import CompactorConfig, resolved_config
from lam_vllm.index import Found
from lam_vllm.messages import portable, with_texts
from lam_vllm.types import Compaction, Message, Work
from lam_vllm.worker.client import WorkerClient
from lam_vllm.worker.jobs import Compact, Compacted, Search, Searched, Warm, Warmed


class WorkerCompactor:
    """As `Compactor`, for a profile that needs the worker's encoder. Every call waits for the worker's answer.

    With `index`, the worker keeps what it compacts so that it can be searched, when nobody waits for it.
    """

    def __init__(self, config: CompactorConfig, client: WorkerClient, *, index: bool = False) -> None:
        facts = client.facts
        self.config = resolved_config(config, facts.threshold_cos, has_basis=facts.basis is not None)
        self._client = client
        self._index = index

    def compact(
        self, messages: Sequence[Message], *, salt: str = "", use_memo: bool = True, canonical: bool = False
    ) -> Compaction:
        """See `Compactor.compact`.

        Raises:
            EncoderError: the encoder failed.
            WorkerLostError: the worker died over it, or cannot be had.
            RuntimeError: anything else failed in the worker.
        """
        job = Compact(self.config, portable(messages), salt, use_memo, canonical, self._index)
        answer = self._client.submit(job).result()
        assert isinstance(answer, Compacted)
        given = messages if isinstance(messages, list) else list(messages)
        if answer.changes:
            given = list(given)
            for index, texts in answer.changes:
                given[index] = with_texts(given[index], texts)
        return Compaction(given, answer.decisions, answer.report)

    def warm(self, messages: Sequence[Message] | None, text: str | None, *, salt: str = "") -> Work:
        """See `Compactor.warm` and `Compactor.warm_text`. Raises as `compact`."""
        job = Warm(self.config, None if messages is None else portable(messages), text, salt)
        answer = self._client.submit(job).result()
        assert isinstance(answer, Warmed)
        return answer.work

    def search(
        self, messages: Sequence[Message] | None, prefix_digest: str | None, query: str, k: int, *, salt: str = ""
    ) -> Found | None:
        """The `k` windows nearest to the query: see `Search`. None where no index is kept under the digest and salt.

        Raises:
            StoreError: there are no messages, and the store cannot be read now.
            EncoderError, WorkerLostError, RuntimeError: as `compact`.
        """
        given = None if messages is None else portable(messages)
        answer = self._client.submit(Search(self.config, given, prefix_digest, query, k, salt)).result()
        assert isinstance(answer, Searched)
        return answer.found
