"""What serves the turns: a model on a device, so many requests in a decode batch, and how they are counted."""

from __future__ import annotations

from dataclasses import dataclass

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.accounting import EXACT, Accounting
from lam_vllm.performance_model.amount import amount
from lam_vllm.performance_model.device import Device
from lam_vllm.performance_model.model import Model


@dataclass(frozen=True, slots=True)
class Engine:
    """A model on a device. `batch` requests share each reading of the weights, and the memory for KV cache.

    Its times are seconds; what they are of must be finite and not negative.

    Raises:
        OptionError: `batch` is not an integer of at least 1.
    """

    device: Device
    model: Model
    batch: int = 1
    accounting: Accounting = EXACT

    def __post_init__(self) -> None:
        _check_batch(self.batch)

    def read_seconds(self, size_bytes: float) -> float:
        """Time to read so many bytes of memory.

        Raises:
            OptionError: `size_bytes` is no amount.
        """
        return amount("bytes", size_bytes) / self.device.memory_bandwidth.value

    def prefill_seconds(self, tokens: float) -> float:
        """The part of a prefill that grows with its tokens alone: 2 FLOP for every active parameter and token.

        Raises:
            OptionError: `tokens` is no amount.
        """
        seconds = 2 * self.model.active_parameters * amount("tokens", tokens) / self.device.prefill_rate
        if tokens > 0 and self.accounting.reads_weights_in_prefill:
            return max(seconds, self.read_seconds(self.model.read_bytes(tokens)))
        return seconds

    def attention_seconds(self, pairs: float) -> float:
        """Attention of prefilled tokens: 4 L d FLOP for every pair of query and key.

        Raises:
            OptionError: `pairs` is no amount.
        """
        return 4 * self.model.layers * self.model.attention_width * amount("pairs", pairs) / self.device.prefill_rate

    def kv_read_seconds(self, tokens: float) -> float:
        """Time to read the KV cache of so many tokens.

        Raises:
            OptionError: `tokens` is no amount.
        """
        return self.read_seconds(amount("tokens", tokens) * self.model.kv_bytes_per_token)

    def weight_seconds(self, batch: int) -> float:
        """A request's share of one decode step's reading of the weights, in a batch of so many.

        Raises:
            OptionError: `batch` is not an integer of at least 1.
        """
        _check_batch(batch)
        return self.read_seconds(self.model.read_bytes(batch)) / batch


def _check_batch(batch: object) -> None:
    if not isinstance(batch, int) or batch < 1:
        raise OptionError("batch", batch, "an integer of at least 1")
