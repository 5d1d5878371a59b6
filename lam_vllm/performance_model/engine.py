"""What serves the turns: a model on a device, so many requests in a decode batch, and how they are counted."""

from __future__ import annotations

from dataclasses import dataclass

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.accounting import EXACT, Accounting
from lam_vllm.performance_model.device import Device
from lam_vllm.performance_model.model import Model


@dataclass(frozen=True, slots=True)
class Engine:
    """A model on a device. `batch` requests share each reading of the weights, and the memory for KV cache.

    Raises:
        OptionError: `batch` is below 1.
    """

    device: Device
    model: Model
    batch: int = 1
    accounting: Accounting = EXACT

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise OptionError("batch", self.batch, "an integer of at least 1")

    def read_seconds(self, size_bytes: float) -> float:
        """Time to read so many bytes of memory."""
        return size_bytes / self.device.memory_bandwidth.value

    def prefill_seconds(self, tokens: float) -> float:
        """The part of a prefill that grows with its tokens alone: 2 FLOP for every active parameter and token."""
        seconds = 2 * self.model.active_parameters * tokens / self.device.prefill_rate
        if tokens > 0 and self.accounting.reads_weights_in_prefill:
            return max(seconds, self.read_seconds(self.model.read_bytes(tokens)))
        return seconds

    def attention_seconds(self, pairs: float) -> float:
        """Attention of prefilled tokens: 4 L d FLOP for every pair of query and key."""
        return 4 * self.model.layers * self.model.attention_width * pairs / self.device.prefill_rate

    def kv_read_seconds(self, tokens: float) -> float:
        """Time to read the KV cache of so many tokens."""
        return self.read_seconds(tokens * self.model.kv_bytes_per_token)

    def weight_seconds(self, batch: int) -> float:
        """A request's share of one decode step's reading of the weights, in a batch of so many."""
        return self.read_seconds(self.model.read_bytes(batch)) / batch
