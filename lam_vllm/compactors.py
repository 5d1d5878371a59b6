"""One compactor per distinct config."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.prefix_memo import PrefixMemo

MAX_COMPACTORS = 8
MEMO_BYTES = 128_000_000


class Compactors:
    """Compactors that share a tokenizer, an encoder and a memo of prefixes, least recently used first out.

    Losing one costs time, never bytes. The memo holds at most `memo_bytes`.
    """

    def __init__(
        self,
        count_tokens: Callable[[str], int],
        encoder: Encoder | None = None,
        tokenizer_name: str = "",
        memo_bytes: int = MEMO_BYTES,
    ) -> None:
        self.encoder = encoder
        self._count_tokens = count_tokens
        self._tokenizer_name = tokenizer_name
        self._memo = PrefixMemo(memo_bytes)
        self._by_config: OrderedDict[CompactorConfig, Compactor] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, config: CompactorConfig) -> Compactor:
        """The compactor of this config.

        Raises:
            MissingExtraError: its profile needs an encoder and there is none.
        """
        with self._lock:
            compactor = self._by_config.pop(config, None) or Compactor(
                config, self._count_tokens, self.encoder, tokenizer_name=self._tokenizer_name, memo=self._memo
            )
            self._by_config[config] = compactor
            while len(self._by_config) > MAX_COMPACTORS:
                self._by_config.popitem(last=False)
        return compactor

    @property
    def memo_bytes_used(self) -> int:
        """Bytes held by the memo of prefixes."""
        return self._memo.nbytes
