"""The figures of one request: into the metrics, and into its box for the report header."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from lam_vllm.metrics import SOURCES, STAGES, Metrics
from lam_vllm.serving.box import RequestBox, Settled
from lam_vllm.serving.prefix_watch import Cause
from lam_vllm.serving.work import Handler, Plan
from lam_vllm.types import Message, Outcome, Report, Work

_LONG_CHARACTERS = 400
_LONG_REPLIES = 3


class Accounting:
    """Counts what was decided when it is decided, and tokens when vLLM has made its ids. Event loop only."""

    def __init__(self, metrics: Metrics, handler: Handler) -> None:
        self.looked_like_tool_user = 0
        self._metrics = metrics
        self._handler = handler

    def decided(self, box: RequestBox, outcome: Outcome, reason: str) -> None:
        """One more request with this outcome."""
        box.outcome = outcome
        self._metrics.requests.labels(box.api, outcome, reason).inc()

    def broken(self, cause: Cause) -> None:
        """One more prefix that vLLM had cached and that came out otherwise."""
        self._metrics.prefix_breaks.labels(cause).inc()

    def settled(self, box: RequestBox, plan: Plan, engine_inputs: Sequence[Any]) -> None:
        """Count the tokens of the ids that vLLM made for a plan."""
        if plan.prefix_break is not None:
            self.broken(plan.prefix_break)
        prefilled = sum(len(entry.get("prompt_token_ids") or ()) for entry in engine_inputs)
        saved = plan.report.saved_tokens if plan.report is not None else 0
        original = prefilled + (saved if plan.outcome == "changed" else 0)
        box.settled.append(Settled(plan.outcome, plan.reason, original, prefilled, plan.seconds, plan.report))
        self._metrics.prompt_tokens_original.labels(box.api).inc(original)
        self._metrics.prompt_tokens_prefilled.labels(box.api).inc(prefilled)
        if plan.report is None:
            return
        # `paper` may put in more than it takes out; the histogram begins at 0.
        self._metrics.removal_ratio.observe(max(0.0, saved / max(1, original)))
        self._report(plan.report, prevented=plan.outcome == "changed")
        if plan.reason == "no_observation" and looks_like_tool_user(plan.messages):
            self.looked_like_tool_user += 1

    def violated(self) -> None:
        """The fast pass decided otherwise than canonical embeddings do."""
        self._metrics.guard_band_violations.inc()

    def encoded(self, work: Work) -> None:
        """Windows that a request needed, by where their embeddings came from."""
        metrics = self._metrics
        for source, windows in zip(SOURCES, (work.encoder_calls, work.canonical_calls, work.remembered), strict=True):
            metrics.encoder_windows.labels(source).inc(windows)
        metrics.canonical_windows.inc(work.canonical_calls)
        for memo, held in self._handler.compactors.memo_bytes().items():
            metrics.memo_bytes.labels(memo).set(held)
        metrics.store_bytes.labels("embeddings").set(self._handler.compactors.store_bytes)
        metrics.store_bytes.labels("index").set(self._handler.compactors.index_bytes)

    def _report(self, report: Report, *, prevented: bool) -> None:
        metrics = self._metrics
        for layer, tokens in report.new_removed_tokens.items():
            metrics.tokens_removed.labels(layer).inc(tokens)
        metrics.stub_tokens.inc(report.new_stub_tokens)
        if prevented:
            avoided = sum(report.new_removed_tokens.values()) - report.new_stub_tokens
            metrics.uncached_tokens_avoided.inc(max(0, avoided))
        metrics.boundary_pairs.inc(report.new_boundary_pairs)
        for distance in report.new_distances:
            metrics.substitution_distance.observe(distance)
        for stage, seconds in report.seconds.items():
            if stage in STAGES:
                metrics.compaction_seconds.labels(stage).observe(seconds)
        self.encoded(report.work)
        metrics.raise_bounds(report.delta, report.delta_hat)
        metrics.store_bytes.labels("records").set(self._handler.records.bytes_used)


def looks_like_tool_user(messages: Sequence[Message]) -> bool:
    """Whether long user messages follow assistant messages so often that an agent, not a person, writes them."""
    replies = [
        after.get("content")
        for before, after in itertools.pairwise(messages)
        if before.get("role") == "assistant" and after.get("role") == "user"
    ]
    long = sum(isinstance(reply, str) and len(reply) >= _LONG_CHARACTERS for reply in replies)
    return long >= _LONG_REPLIES and 2 * long > len(replies)
