"""The rows of the dashboard that say what is saved: tokens and time."""

from __future__ import annotations

from kinds import Buckets, Lines, Panel, Query, Stack, quantiles

TOKENS = "suffix: tok/s"

WHAT_IT_SAVES: tuple[Panel, ...] = (
    Stack(
        "Removal by layer",
        "l0: lines that repeat. l1: windows near an earlier one. alias: directory names. The references put in their "
        "place are not taken off here. A text is counted when it first appears, not again on later turns.",
        (Query("sum by (layer) (rate(lam:tokens_removed_total{$here}[$__rate_interval]))", "{{layer}}"),),
        TOKENS,
    ),
    Lines(
        "What removal costs and leaves",
        "Tokens of the references put in, and tokens avoided net of them.",
        (
            Query("sum(rate(lam:stub_tokens_total{$here}[$__rate_interval]))", "references"),
            Query("sum(rate(lam:uncached_tokens_avoided_total{$here}[$__rate_interval]))", "avoided, net"),
        ),
        TOKENS,
    ),
    Lines(
        "Prompt tokens sent and prefilled",
        "As clients sent them (an estimate), and as vLLM got them.",
        (
            Query("sum by (api) (rate(lam:prompt_tokens_original_total{$here}[$__rate_interval]))", "{{api}} sent"),
            Query(
                "sum by (api) (rate(lam:prompt_tokens_prefilled_total{$here}[$__rate_interval]))", "{{api}} prefilled"
            ),
        ),
        TOKENS,
    ),
    Buckets(
        "Removal ratio of requests",
        "What share of each request's prompt was removed. The lowest bucket holds those in which nothing repeats.",
        (Query("sum by (le) (rate(lam:removal_ratio_bucket{$here}[$__rate_interval]))"),),
        "percentunit",
    ),
    Lines(
        "Removal ratio: zeros, median, 90th",
        "Requests with nothing removed as a share of all, and quantiles with those zeros in. Many zeros are usual "
        "where conversations are short.",
        (
            Query(
                'sum(rate(lam:removal_ratio_bucket{$here, le="0.0"}[$__rate_interval]))'
                " / (sum(rate(lam:removal_ratio_count{$here}[$__rate_interval])) > 0)",
                "nothing removed",
            ),
            *quantiles("lam:removal_ratio_bucket{$here}", "ratio"),
        ),
        "percentunit",
    ),
    Lines(
        "vLLM's prefix cache",
        "Hits as a share of the tokens asked for, and use of the KV cache. The plugin must not lower the hits: if they "
        "fall, look at the prefix breaks.",
        (
            Query(
                "sum(rate(vllm:prefix_cache_hits_total{$here}[$__rate_interval]))"
                " / (sum(rate(vllm:prefix_cache_queries_total{$here}[$__rate_interval])) > 0)",
                "prefix hits",
            ),
            Query("max(vllm:kv_cache_usage_perc{$here})", "KV cache in use"),
        ),
        "percentunit",
    ),
)

TIME_TO_FIRST_TOKEN: tuple[Panel, ...] = (
    Lines(
        "First token, plugin on",
        "From arrival to the first streamed characters, compaction included.",
        quantiles(
            'lam:time_to_first_token_seconds_bucket{$here, outcome=~"changed|unchanged|observed"}',
            "{{outcome}}",
            "outcome",
        ),
        "s",
    ),
    Lines(
        "First token, plugin off or failed",
        "The same for requests handed on as they came. Compare like with like: those are often other prompts.",
        quantiles(
            'lam:time_to_first_token_seconds_bucket{$here, outcome=~"passed_through|failed_open"}',
            "{{outcome}}",
            "outcome",
        ),
        "s",
    ),
    Lines(
        "vLLM's own times",
        "vLLM starts its clock after the plugin, so its first token hides compaction. Prefill is what shorter prompts "
        "make shorter.",
        (
            *quantiles("vllm:request_prefill_time_seconds_bucket{$here}", "prefill"),
            *quantiles("vllm:request_queue_time_seconds_bucket{$here}", "queue"),
            *quantiles("vllm:time_to_first_token_seconds_bucket{$here}", "first token by vLLM"),
        ),
        "s",
    ),
    Lines(
        "Compaction by stage, mean",
        "recognise: finding the known prefix. windows, encode: profiles with an encoder. count: tokens. total: all of "
        "it, without waiting in the queue.",
        (
            Query(
                "sum by (stage) (rate(lam:compaction_seconds_sum{$here}[$__rate_interval]))"
                " / (sum by (stage) (rate(lam:compaction_seconds_count{$here}[$__rate_interval])) > 0)",
                "{{stage}}",
            ),
        ),
        "s",
    ),
    Lines(
        "Compaction by stage, median and 90th",
        "What slow requests pay. A 90th percentile of encode far above its median is text seen for the first time: let "
        "clients call /v1/lam/warm.",
        quantiles("lam:compaction_seconds_bucket{$here}", "{{stage}}", "stage"),
        "s",
    ),
    Lines(
        "Compaction's share of the first token",
        "Mean over mean, by server. Above the line for ten minutes the alert LamCompactionShareHigh goes off.",
        (Query("instance:lam_compaction_share:ratio_rate5m{$here}", "{{instance}}"),),
        "percentunit",
        0.1,
    ),
)
