"""A sampled share of requests is computed once more from nothing, off their path."""

from __future__ import annotations

from collections.abc import Sequence

from lam_vllm.messages import quick_digests
from lam_vllm.pool import Pool
from lam_vllm.serving.accounting import Accounting
from lam_vllm.serving.options import Options
from lam_vllm.serving.prefix_watch import is_sampled
from lam_vllm.serving.work import Difference, Handler, Plan
from lam_vllm.types import Message

EXACT_RECHECK_RATE = 1 / 64
"""Share of requests under `exact` that are computed again; other profiles have `audit_rate`."""
MOST_IN_BACKGROUND = 64
"""With so many pieces of other work waiting a request is not decided again, whatever the rate."""


class Recheck:
    """Compares what was emitted with what comes out of nothing, by canonical embeddings alone."""

    def __init__(self, handler: Handler, pool: Pool, accounting: Accounting, audit_rate: float) -> None:
        self._handler = handler
        self._pool = pool
        self._accounting = accounting
        self._audit_rate = audit_rate

    def is_due(self, options: Options, plan: Plan) -> bool:
        """Whether this request is in the sample, and there is room for the work."""
        if plan.report is None or options.mode != "on":
            return False
        if self._handler.compactors.lane(options.config) == "exact":
            # One thread, which requests wait for: it is done there when nobody does.
            rate, has_room = EXACT_RECHECK_RATE, not self._pool.waiting("exact")
        else:
            rate, has_room = self._audit_rate, self._pool.waiting("background") < MOST_IN_BACKGROUND
        return has_room and is_sampled(plan.report.prefix_digest, rate)

    async def run(self, options: Options, given: list[Message], emitted: Sequence[Message], salt: str) -> None:
        """Do it, and count what differs."""

        def difference() -> Difference | None:
            return self._handler.difference(options.config, given, quick_digests(emitted, salt)[-1], salt)

        exact = self._handler.compactors.lane(options.config) == "exact"
        found = await self._pool.submit(difference, "exact" if exact else "background")
        if found == "guard_band":
            self._accounting.violated()
        elif found == "defect":
            self._accounting.broken("defect")
