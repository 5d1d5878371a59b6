"""A recorded run, sent turn by turn to a live server: once with the plugin off, once with it on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.live.client import Client, PromptTooLongError
from lam_vllm.evaluation.live.dialects import Dialect, Usage, dialect
from lam_vllm.types import Message

OPTIONS_HEADER = "x-lam"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `usage` is None where the prompt did not fit; `report` holds the plugin's counts, if it ran."""

    usage: Usage | None
    ttft_seconds: float | None = None
    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The turns of one run, in order, with the plugin off and on, and the prefixes that broke meanwhile by cause."""

    run_id: str
    off: tuple[Turn, ...]
    on: tuple[Turn, ...]
    prefix_breaks: Mapping[str, int]

    @property
    def answered_in_both(self) -> list[tuple[Turn, Turn]]:
        """The pairs (off, on) of which neither was too long."""
        return [(off, on) for off, on in zip(self.off, self.on, strict=True) if off.usage and on.usage]

    @property
    def rescued(self) -> int:
        """Turns that were too long without the plugin and answered with it."""
        return sum(off.usage is None and on.usage is not None for off, on in zip(self.off, self.on, strict=True))

    @property
    def removed_tokens(self) -> Mapping[str, int]:
        """Tokens taken out of the conversation by layer, as its last answered turn reports them."""
        answered = [turn for turn in self.on if turn.usage is not None]
        return answered[-1].report.get("removed_tokens", {}) if answered else {}

    @property
    def delta_hat(self) -> float:
        """Upper bound on the distance of every substitution made."""
        return max((float(turn.report.get("delta_hat", 0.0)) for turn in self.on), default=0.0)


def prompts(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """The request of every turn: what stands before each assistant message but a leading one."""
    return [messages[:index] for index, message in enumerate(messages) if index and message.get("role") == "assistant"]


def replay(
    run: Run,
    client: Client,
    *,
    api: str = "chat",
    profile: str | None = None,
    max_turns: int | None = None,
    max_tokens: int = 8,
    on_turn: Callable[[], None] = lambda: None,
) -> ReplayResult:
    """Every turn of the run sent twice, off and on, under cache salts of its own so that no pass warms another.

    `profile` None is the server's own. `on_turn` is called after each request.

    Raises:
        OptionError: no API is called `api`.
        ServerError: the server cannot be reached, or refuses a request for another reason than its length.
    """
    spoken = dialect(api)
    requests = prompts(run.messages)[:max_turns]
    model = client.model()
    before = client.prefix_breaks()
    on = {"enabled": True, **({"profile": profile} if profile else {})}

    def one_pass(options: str) -> tuple[Turn, ...]:
        fields = {"model": model, "temperature": 0, "cache_salt": uuid.uuid4().hex}
        return tuple(_turn(client, spoken, request, max_tokens, fields, options, on_turn) for request in requests)

    passes = [one_pass(options) for options in ("off", json.dumps(on))]
    return ReplayResult(run.id, passes[0], passes[1], client.prefix_breaks() - before)


def _turn(
    client: Client,
    spoken: Dialect,
    request: Sequence[Message],
    max_tokens: int,
    fields: Mapping[str, Any],
    options: str,
    on_turn: Callable[[], None],
) -> Turn:
    try:
        answer = client.stream(spoken, {**spoken.body(request, max_tokens), **fields}, {OPTIONS_HEADER: options})
    except PromptTooLongError:
        return Turn(None)
    finally:
        on_turn()
    return Turn(answer.usage, answer.ttft_seconds, answer.report)
