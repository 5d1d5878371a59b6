"""Every metric, declared once. Imported only inside the server: prometheus_client reads its directory on import."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import get_args

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from lam_vllm.stores.base import KINDS
from lam_vllm.types import Layer

APIS = ("chat", "responses", "messages", "tokenize", "compact")
"""The last is the route of that name, where the plugin is served without an engine."""
LOOKUPS = ("found", "expired", "unknown")
FAILURES = ("worker_lost", "encoder_error", "time_limit", "internal_error")
"""Reasons of the outcome `failed_open`."""
STAGES = ("recognise", "windows", "encode", "count", "total")
SOURCES = ("fast", "canonical", "memo")
CAUSES = ("defect", "failed_open", "config_changed", "client_changed")
NO_REASON = "none"
"""Label of a request that was changed: every other outcome has a reason."""

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
_RATIOS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
# delta = sqrt(2 - 2t) is 0.316 at the usual t = 0.95 and 0.447 at 0.9; 0 is byte-equal text.
_DISTANCES = (0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.32, 0.4, 0.5, 1.0, 2.0)


class Metrics:
    """The metrics of one process, in one registry. Labels come from fixed sets, never from a request."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._of_requests()
        self._of_removal()
        self._of_processes()
        self._bounds = (0.0, 0.0)
        self._show_zeros()

    def raise_bounds(self, delta: float, delta_hat: float) -> None:
        """Lift the gauges of the promised and of the attained bound to at least these."""
        self._bounds = (max(self._bounds[0], delta), max(self._bounds[1], delta_hat))
        self.delta.set(self._bounds[0])
        self.delta_hat_max.set(self._bounds[1])

    def counts(self, name: str) -> dict[str, float]:
        """The samples of the counter `lam:NAME` of this server; see `counters`."""
        return self.counters(name)[name]

    def counters(self, *names: str) -> dict[str, dict[str, float]]:
        """The samples of these counters of this server, by label values joined with a slash.

        Where several processes share a directory for their metrics, they are sums over those. Reads files then.
        """
        found: dict[str, dict[str, float]] = {name: {} for name in names}
        labels = {f"lam:{name}_total": (name, getattr(self, name)._labelnames) for name in names}
        for family in self._families(names):
            for sample in family.samples:
                if sample.name in labels:
                    name, order = labels[sample.name]
                    found[name]["/".join(sample.labels[label] for label in order)] = sample.value
        return found

    def _families(self, names: Iterable[str]) -> Iterable[Metric]:
        if shared_directory() is None:
            return chain.from_iterable(getattr(self, name).collect() for name in names)
        merged = CollectorRegistry()
        MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
        return merged.collect()

    def _of_requests(self) -> None:
        """Requests, their tokens and their times."""
        self.requests = self._counter("lam:requests", "Requests that reached the hook.", "api", "outcome", "reason")
        self.prompt_tokens_original = self._counter(
            "lam:prompt_tokens_original", "Prompt tokens as the client sent them (an estimate).", "api"
        )
        self.prompt_tokens_prefilled = self._counter(
            "lam:prompt_tokens_prefilled", "Prompt tokens that vLLM made.", "api"
        )
        self.removal_ratio = self._histogram(
            "lam:removal_ratio", "Share of a request's prompt tokens that was removed, zeros included.", _RATIOS
        )
        self.compaction_seconds = self._histogram(
            "lam:compaction_seconds", "Time of one request's compaction, by stage.", _SECONDS, "stage"
        )
        self.time_to_first_token_seconds = self._histogram(
            "lam:time_to_first_token_seconds",
            "From arrival to the first streamed text, reasoning or tool-call characters, compaction included.",
            _SECONDS,
            "api",
            "outcome",
        )
        self.prefix_breaks = self._counter(
            "lam:prefix_breaks", "Requests that broke a prefix which vLLM has cached.", "cause"
        )
        self.queue_depth = self._gauge("lam:queue_depth", "Requests waiting for or inside the compactor.", "livesum")

    def _of_removal(self) -> None:
        """What was removed, and how far a replaced text lay from what stands for it."""
        self.tokens_removed = self._counter(
            "lam:tokens_removed", "Tokens removed, each at its first appearance.", "layer"
        )
        self.stub_tokens = self._counter("lam:stub_tokens", "Tokens of the references put in place of removed text.")
        self.uncached_tokens_avoided = self._counter(
            "lam:uncached_tokens_avoided", "Tokens removed less their references, each at its first appearance."
        )
        self.substitution_distance = self._histogram(
            "lam:substitution_distance",
            "Bound on the l2 distance of a replaced text from what stands for it.",
            _DISTANCES,
        )
        self.delta_hat_max = self._gauge("lam:delta_hat_max", "Largest substitution distance so far.", "max")
        self.delta = self._gauge(
            "lam:delta", "Largest bound on the substitution distance that a request was promised.", "max"
        )
        self.boundary_pairs = self._counter(
            "lam:boundary_pairs", "Pairs so close to the bound that another kind of CPU might decide them otherwise."
        )

    def _of_processes(self) -> None:
        """The encoder and its worker, and what is held."""
        self.encoder_windows = self._counter(
            "lam:encoder_windows",
            "Windows that needed an embedding: encoded (fast), again (canonical), or remembered (memo).",
            "source",
        )
        self.canonical_windows = self._counter(
            "lam:canonical_windows", "Windows encoded canonically because a decision was inside the guard band."
        )
        self.guard_band_violations = self._counter(
            "lam:guard_band_violations",
            "Audited requests that the fast pass decided otherwise than canonical ones do.",
        )
        self.worker_restarts = self._counter("lam:worker_restarts", "Times that the worker process was started again.")
        self.lookups = self._counter("lam:lookups", "Look-ups of removed text.", "result")
        self.memo_bytes = self._gauge("lam:memo_bytes", "Bytes held by a memo.", "livesum", "memo")
        # A store that processes share is one store, and each of them sees all of it.
        self.store_bytes = self._gauge("lam:store_bytes", "Bytes that a store holds.", "livemostrecent", "store")
        self.store_cap_bytes = self._gauge(
            "lam:store_cap_bytes", "Bytes that a store may hold; the oldest go first.", "livemostrecent", "store"
        )
        self.store_errors = self._counter(
            "lam:store_errors", "Rows that a store lost or could not answer for; requests go on.", "store"
        )

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self._registry)

    def _gauge(self, name: str, what: str, mode: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, registry=self._registry, multiprocess_mode=mode)  # type: ignore[arg-type]

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, what, labels, registry=self._registry, buckets=buckets)

    def _show_zeros(self) -> None:
        """A counter that must stay 0 has to be seen at 0, or nobody sees its first step."""
        for cause in CAUSES:
            self.prefix_breaks.labels(cause)
        for source in SOURCES:
            self.encoder_windows.labels(source)
        for layer in get_args(Layer):
            self.tokens_removed.labels(layer)
        for store in KINDS:
            self.store_errors.labels(store)
        for result in LOOKUPS:
            self.lookups.labels(result)
        for stage in STAGES:
            self.compaction_seconds.labels(stage)
        for api in APIS:
            for reason in FAILURES:
                self.requests.labels(api, "failed_open", reason)
            self.prompt_tokens_original.labels(api)
            self.prompt_tokens_prefilled.labels(api)


def shared_directory() -> Path | None:
    """Where the API processes of one server keep their metrics together; None where there is only one process."""
    path = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return Path(path) if path else None


@cache
def process_metrics() -> Metrics:
    """The metrics of this process, in the registry that vLLM shows at /metrics; declared on the first call."""
    return Metrics()
