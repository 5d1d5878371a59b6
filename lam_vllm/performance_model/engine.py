"""What serves the turns: a model on a device, so many requests in a decode batch, and how they are counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.accounting import EXACT, Accounting
from lam_vllm.performance_model.amount import amount
from lam_vllm.performance_model.device import Device
from lam_vllm.performance_model.model import Model
from lam_vllm.performance_model.served import Served


@dataclass(frozen=True, slots=True)
class Engine:
    """A model on a device. `batch` requests share each reading of the weights, and the memory for KV cache.

    Its times are seconds; what they are of must be finite and not negative. Where `served` is there, prefills and
    decode steps go by its coefficients, else by the formulas over the device's rates.

    Raises:
        OptionError: `batch` is not an integer of at least 1.
    """

    device: Device
    model: Model
    batch: int = 1
    accounting: Accounting = EXACT
    served: Served | None = field(init=False, repr=False, compare=False)
    """What was measured of this model on this device; None: nothing was, or the accounting does not take it."""

    def __post_init__(self) -> None:
        _check_batch(self.batch)
        found = self.device.served
        taken = found if found and self.accounting.takes_measured and found.holds_for(self.model) else None
        object.__setattr__(self, "served", taken)  # looked up several times a turn

    @property
    def fixed_seconds(self) -> float:
        """Of a request, before its first token, whatever is prefilled; 0 where nothing was measured."""
        served = self.served
        return served.fixed_seconds if served else 0.0

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
        served = self.served
        if served:
            return served.seconds_per_token * amount("tokens", tokens)
        seconds = 2 * self.model.active_parameters * amount("tokens", tokens) / self.device.prefill_rate
        if tokens > 0 and self.accounting.reads_weights_in_prefill:
            return max(seconds, self.read_seconds(self.model.read_bytes(tokens)))
        return seconds

    def attention_seconds(self, pairs: float) -> float:
        """Attention of prefilled tokens: 4 L d FLOP for every pair of query and key.

        Raises:
            OptionError: `pairs` is no amount.
        """
        served = self.served
        if served:
            return served.seconds_per_pair * amount("pairs", pairs)
        return 4 * self.model.layers * self.model.attention_width * amount("pairs", pairs) / self.device.prefill_rate

    def kv_read_seconds(self, tokens: float) -> float:
        """Time to read the KV cache of so many tokens.

        Raises:
            OptionError: `tokens` is no amount.
        """
        amount("tokens", tokens)
        served = self.served
        if served:
            return served.decode_seconds_per_context_token * tokens
        return self.read_seconds(tokens * self.model.kv_bytes_per_token)

    def weight_seconds(self, batch: int) -> float:
        """A request's share of one decode step's reading of the weights, in a batch of so many.

        What was measured of one request is taken to grow as the bytes read.

        Raises:
            OptionError: `batch` is not an integer of at least 1.
        """
        _check_batch(batch)
        served = self.served
        if served:
            return served.decode_fixed_seconds * self.model.read_bytes(batch) / self.model.read_bytes(1) / batch
        return self.read_seconds(self.model.read_bytes(batch)) / batch


def _check_batch(batch: object) -> None:
    if not isinstance(batch, int) or batch < 1:
        raise OptionError("batch", batch, "an integer of at least 1")
