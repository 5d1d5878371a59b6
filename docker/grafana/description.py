"""What the dashboard shows: every panel with its text and its queries, row by row (two of them in
description_savings.py). Nothing but that.

Every query is run against a real server by tests/server/test_prometheus.py.
"""

from __future__ import annotations

from description_savings import TIME_TO_FIRST_TOKEN, WHAT_IT_SAVES
from kinds import ABOVE_ZERO, Buckets, Lines, Number, Panel, Query, Rows, Stack, over_the_time_shown, summed

HOW_TO_READ = """\
**Is it well?** Everything in the first row that must be 0 or small is green, and no alert is firing. \
**Does it pay?** *Prompt tokens removed* says what share of the prompts never reached prefill. \
If that is 0, look at *Why nothing was removed*.

*On* are requests with the outcome `changed`, `unchanged` or `observed`, *off* those that `passed_through`. \
What each alert means, and what to do about it, stands in docker/README.md under the alert's name."""

IS_IT_WELL: tuple[Panel, ...] = (
    Number(
        "Prompt tokens removed",
        "Share of prompt tokens that were never prefilled, over the time shown.",
        (
            Query(
                "1 - sum(increase(lam:prompt_tokens_prefilled_total{$here}[$__range]))"
                " / (sum(increase(lam:prompt_tokens_original_total{$here}[$__range])) > 0)"
            ),
        ),
        "percentunit",
    ),
    Number(
        "Prefix breaks: defects",
        "Must be 0. Anything else is a bug of the plugin.",
        over_the_time_shown('lam:prefix_breaks_total{$here, cause="defect"}'),
        "none",
        ABOVE_ZERO,
    ),
    Number(
        "delta_hat above delta",
        "How far a substitution lay beyond the promised bound. Must not be above 0.",
        (Query("max(instance:lam_delta_excess:max{$here})"),),
        "none",
        ABOVE_ZERO,
    ),
    Number(
        "Failed open",
        "Share of requests handed on unshortened after a failure, on the worst server. Worry from 1% on.",
        (Query("max(instance:lam_failed_open:ratio_rate5m{$here})"),),
        "percentunit",
        0.01,
    ),
    Number(
        "Share of first token",
        "Compaction's share of the time to first token, on the worst server. Worry from 10% on.",
        (Query("max(instance:lam_compaction_share:ratio_rate5m{$here})"),),
        "percentunit",
        0.1,
    ),
    Number(
        "Guard band violations",
        "Audited requests that the fast pass decided otherwise than canonical embeddings do. Must be 0.",
        over_the_time_shown("lam:guard_band_violations_total{$here}"),
        "none",
        ABOVE_ZERO,
    ),
    Number(
        "Worker restarts",
        "Once is no harm. If it repeats, look for the kernel's out-of-memory killer.",
        over_the_time_shown("lam:worker_restarts_total{$here}"),
        "none",
        ABOVE_ZERO,
    ),
    Number(
        "Store errors",
        "Rows that were lost or could not be read. Requests go on.",
        over_the_time_shown("lam:store_errors_total{$here}"),
        "none",
        ABOVE_ZERO,
    ),
    Rows(
        "Alerts firing",
        "Empty is good. The runbook of each stands in docker/README.md.",
        (Query('ALERTS{alertname=~"Lam.+", alertstate="firing", job=~"$job"}'),),
    ),
)

PROMISES: tuple[Panel, ...] = (
    Lines(
        "Prefix breaks by cause",
        "Requests that lost a cached prefix. defect: a bug, must be 0. failed_open: after a failure. config_changed: "
        "options changed between turns, or the plugin was switched on in mid-conversation. client_changed: the client "
        "edited its history.",
        (summed("lam:prefix_breaks_total{$here}", "cause"),),
    ),
    Lines(
        "delta_hat beside delta",
        "The largest distance of a substitution so far, and the bound that was promised. delta_hat must not rise above "
        "delta. Both are 0 while only exact has run.",
        (
            Query("max(lam:delta{$here})", "delta: promised"),
            Query("max(lam:delta_hat_max{$here})", "delta_hat: attained"),
        ),
        "none",
    ),
    Buckets(
        "Distances of substitutions",
        "How far replaced windows lay from what stands for them (layer l1).",
        (Query("sum by (le) (rate(lam:substitution_distance_bucket{$here}[$__rate_interval]))"),),
        "none",
    ),
    Lines(
        "Guard band",
        "Violations: audited requests decided otherwise, must be 0. Boundary pairs: so close to delta that another "
        "kind of CPU might decide otherwise; a concern where replicas run on different CPUs.",
        (
            Query("sum(increase(lam:guard_band_violations_total{$here}[$__rate_interval]))", "violations"),
            Query("sum(increase(lam:boundary_pairs_total{$here}[$__rate_interval]))", "boundary pairs"),
        ),
    ),
    Stack(
        "Requests by outcome",
        "Watch failed_open. rejected: options that a client got wrong (400).",
        (Query("sum by (outcome) (rate(lam:requests_total{$here}[$__rate_interval]))", "{{outcome}}"),),
        "reqps",
    ),
    Stack(
        "Why nothing was removed",
        "Requests that were not changed, by reason. If an agent only meets no_observation, it sends tool output as "
        'user messages and should ask for observations "tool+user".',
        (
            Query(
                'sum by (outcome, reason) (rate(lam:requests_total{$here, reason!="none"}[$__rate_interval])) > 0',
                "{{outcome}}: {{reason}}",
            ),
        ),
        "reqps",
    ),
)

ENCODER_AND_WORKER: tuple[Panel, ...] = (
    Stack(
        "Encoder windows by source",
        "fast: encoded. canonical: encoded again inside the guard band. memo: remembered, which costs next to nothing.",
        (Query("sum by (source) (rate(lam:encoder_windows_total{$here}[$__rate_interval]))", "{{source}}"),),
        "suffix: windows/s",
        width=6,
    ),
    Lines(
        "Queue",
        "Requests waiting for the compactor or inside it. Worry when it does not come back to 0: give the encoder more "
        "threads, or the load more servers.",
        (Query("sum by (instance) (lam:queue_depth{$here})", "{{instance}}"),),
        width=6,
    ),
    Lines(
        "Worker restarts",
        "Worker processes that died or hung and were started again.",
        (summed("lam:worker_restarts_total{$here}", "instance"),),
        width=6,
    ),
    Lines(
        "Memos",
        "Bytes of remembered prefixes and embeddings. At their cap they cost time, never another answer.",
        (Query("sum by (memo) (lam:memo_bytes{$here})", "{{memo}}"),),
        "bytes",
        width=6,
    ),
)

STORE: tuple[Panel, ...] = (
    Lines(
        "Bytes kept",
        "Against the cap. A store that several servers share is shown once.",
        (
            Query("max by (store) (lam:store_bytes{$here})", "{{store}}"),
            Query("max by (store) (lam:store_cap_bytes{$here})", "{{store}}: cap"),
        ),
        "bytes",
    ),
    Lines(
        "Errors",
        "Rows lost while the store was slow, full or gone. It recovers without a restart.",
        (summed("lam:store_errors_total{$here}", "store"),),
    ),
    Lines(
        "Look-ups",
        "found. expired: dropped at the cap or after its time (410). unknown: never kept, or another tenant's (404).",
        (Query("sum by (result) (rate(lam:lookups_total{$here}[$__rate_interval]))", "{{result}}"),),
        "ops",
    ),
)

DASHBOARD: dict[str, tuple[Panel, ...]] = {
    "Is it well?": IS_IT_WELL,
    "What it saves": WHAT_IT_SAVES,
    "Time to first token": TIME_TO_FIRST_TOKEN,
    "What is promised, and what requests meet": PROMISES,
    "Encoder and worker": ENCODER_AND_WORKER,
    "Store": STORE,
}
