"""The figures of one arm, from what came of its turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

from serving_client import Answer, Call
from serving_load import Sent

from lam_vllm.errors import LamError

LATE_SECONDS = 0.1
"""A turn that the client sends so long after its time is counted as late: then the load was not the stated one."""


def server_figures(sent: Sequence[Sent]) -> dict[str, Any]:
    """Rates and times of the answers that are complete, by the client's clock; failures and late turns.

    Output tokens per second run from the first turn sent to the last answer's end. `tpot` is an answer's time from
    first to last text over its tokens but one; `itl` the time between two pieces of text. `drain_seconds` is how long
    after the last arrival the last answer ended: long means that the rate was too high. `failed` counts answers that
    are not complete, and warm calls that failed.

    Raises:
        LamError: no answer is complete.
    """
    answers = [one.answer for one in sent if not one.answer.error]
    if not answers:
        raise LamError(f"no turn was answered: {sent[0].answer.error}")
    began, ended = min(one.answer.sent for one in sent), max(one.answer.ended for one in sent)
    last = max(one.answer.sent for one in sent)
    ttft = [answer.texts[0] - answer.sent for answer in answers]
    gaps = [after - before for answer in answers for before, after in pairwise(answer.texts)]
    return {
        "turns": len(sent),
        "failed": len(sent) - len(answers) + sum(bool(one.warmed and one.warmed.error) for one in sent),
        "late": sum(one.late_seconds > LATE_SECONDS for one in sent),
        "drain_seconds": round(ended - last, 2),
        "prompt_tokens": sum(answer.prompt_tokens for answer in answers),
        "cached_tokens": sum(answer.cached_tokens for answer in answers),
        "out_tok_s": round(sum(answer.output_tokens for answer in answers) / (ended - began), 2),
        "ttft_p50_ms": _ms(ttft, median),
        "ttft_p90_ms": _ms(ttft, _p90),
        "tpot_p50_ms": _ms(map(_tpot, answers), median),
        "itl_p50_ms": _ms(gaps, median),
    }


def compactor_figures(sent: Sequence[Sent], alone: Sequence[Call]) -> dict[str, Any]:
    """The compactor's speed under load and alone, in encoder tokens per second; its share of the time to first text.

    The tokens are those of the windows that a turn is the first of its conversation to need, once each. The time is
    that during which at least one call was in the compactor that had such windows: a warm call where there are any,
    else the hook itself; finding known text, cutting and deciding is part of it. With several API servers a window may
    be encoded in each, which counts as time and not as tokens. `alone` are the same calls on the idle server, in the
    order of the turns.
    """
    done = [(one, call) for one, call in zip(sent, alone, strict=True) if not (_error(one) or call.error)]
    new = [(one, call) for one, call in done if one.turn.encoder_tokens]
    tokens = sum(one.turn.encoder_tokens for one, _ in new)
    loaded = _speed(tokens, [_call(one) for one, _ in new])
    solo = _speed(tokens, [call for _, call in new])
    hooks = [(one.answer.hook_seconds or 0.0, one.answer.texts[0] - one.answer.sent) for one, _ in done]
    return {
        "windows_needed": sum(one.turn.windows for one, _ in new),
        "encoder_tokens": tokens,
        "compactor_tok_s": loaded and round(loaded),
        "compactor_solo_tok_s": solo and round(solo),
        "vs_solo": loaded and solo and round(loaded / solo, 3),
        "hook_p50_ms": _ms([hook for hook, _ in hooks], median),
        "hook_p90_ms": _ms([hook for hook, _ in hooks], _p90),
        "hook_share_of_ttft": round(sum(hook for hook, _ in hooks) / sum(ttft for _, ttft in hooks), 4),
        "hook_share_of_ttft_p90": round(_p90([hook / ttft for hook, ttft in hooks]), 4),
    }


def warm_figures(sent: Sequence[Sent]) -> dict[str, Any]:
    """How many warm calls had ended when their turn was sent, and what a warm call took."""
    warmed = [(one.warmed, one.answer) for one in sent if one.warmed and not one.warmed.error]
    return {
        "warmed": len(warmed),
        "warmed_in_time": sum(call.ended <= answer.sent for call, answer in warmed),
        "warm_p50_ms": _ms([call.seconds for call, _ in warmed], median),
    }


def covered_seconds(calls: Iterable[Call]) -> float:
    """The time during which at least one of these calls was worked on; a call begins when it is sent."""
    total, until = 0.0, float("-inf")
    for began, seconds in sorted((call.sent, call.seconds) for call in calls):
        total += max(0.0, began + seconds - max(until, began))
        until = max(until, began + seconds)
    return total


def _speed(tokens: int, calls: Iterable[Call]) -> float | None:
    """Tokens per second; None where there was nothing to encode."""
    seconds = covered_seconds(calls)
    return tokens / seconds if seconds else None


def _error(one: Sent) -> str | None:
    return one.answer.error or (one.warmed.error if one.warmed else None)


def _call(one: Sent) -> Call:
    return one.warmed or Call(one.answer.sent, one.answer.ended, one.answer.hook_seconds or 0.0)


def _tpot(answer: Answer) -> float:
    return (answer.texts[-1] - answer.texts[0]) / max(1, answer.output_tokens - 1)


def _p90(values: Sequence[float]) -> float:
    return quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]


def _ms(seconds: Iterable[float], of: Callable[[Sequence[float]], float]) -> float:
    return round(1000 * of(list(seconds)), 2)
