"""A compactor whose work is done in the worker process."""

from __future__ import annotations

from collections.abc import Sequence

from lam_vllm.config import CompactorConfig, resolved_config
from lam_vllm.messages import portable, with_texts
from lam_vllm.types import Compaction, Message, Work
from lam_vllm.worker.client import WorkerClient
from lam_vllm.worker.jobs import Compact, Compacted, Warm, Warmed


class WorkerCompactor:
    """As `Compactor`, for a profile that needs the worker's encoder. Every call waits for the worker's answer."""

    def __init__(self, config: CompactorConfig, client: WorkerClient) -> None:
        self.config = resolved_config(config, client.facts.threshold_cos)
        self._client = client

    def compact(
        self, messages: Sequence[Message], *, salt: str = "", use_memo: bool = True, canonical: bool = False
    ) -> Compaction:
        """See `Compactor.compact`.

        Raises:
            EncoderError: the encoder failed.
            WorkerLostError: the worker died over it, or cannot be had.
            RuntimeError: anything else failed in the worker.
        """
        job = Compact(self.config, portable(messages), salt, use_memo, canonical)
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
