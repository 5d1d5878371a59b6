"""Figures of one recorded attempt: outcome, turns, tokens, and how often what was removed was read again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lam_vllm import Compactor
from lam_vllm.evaluation.corpus import Run, read_runs
from lam_vllm.evaluation.documents import read_documents
from lam_vllm.evaluation.inspection.view import Cut, inspect_run
from lam_vllm.lines import cut_text, number_key
from lam_vllm.messages import is_observation, observed_texts

SHOWN_SHARE = 0.5
"""Of a span's distinct lines, to be called read again."""
_TOKENS = {
    "prompt": ("prompt_tokens", "input_tokens"),
    "completion": ("completion_tokens", "output_tokens"),
    "cached": ("cached_tokens", "cache_read_input_tokens"),
}


class Usage(NamedTuple):
    """Tokens that a server counted over a whole run; None where it did not say."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None


NOT_COUNTED = Usage()


class Rereading(NamedTuple):
    """Spans taken out of tool output with a turn after them, and how many of those the agent read again in time."""

    removed: int = 0
    again: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task: `success` is None where nothing tells, `rereading` where nothing was compacted."""

    task: str
    success: bool | None
    turns: int
    usage: Usage = NOT_COUNTED
    rereading: Rereading | None = None


def read_attempts(
    paths: Sequence[str | Path], judge: str | None, compactor: Compactor | None, within_turns: int
) -> list[Attempt]:
    """The attempts that are recorded in files of any form that `read_runs` takes, in order.

    The task is the run's id up to a `#`. Success is what the command `judge` says, which gets the run's id and
    messages as JSON on its input and exits with 0 for a success; without it, the run's own `resolved`.

    Raises:
        InputFileError: as `read_runs`.
    """
    return [
        Attempt(
            run.id.partition("#")[0],
            run.resolved if judge is None else judged(run, judge),
            sum(message.get("role") == "assistant" for message in run.messages),
            usage,
            None if compactor is None else rereading(run, compactor, within_turns),
        )
        for path in paths
        for run, usage in _with_usage(path)
    ]


def judged(run: Run, command: str) -> bool:
    """Whether the command ends well over the run's id and messages."""
    text = json.dumps({"id": run.id, "messages": run.messages})
    return subprocess.run(["/bin/bash", "-c", command], input=text, text=True, check=False).returncode == 0


def rereading(run: Run, compactor: Compactor, within_turns: int) -> Rereading:
    """How many spans the compactor takes out of the run, and after how many the agent reads that text again.

    A span counts where a turn follows it. It is read again where a result of one of the next `within_turns` turns
    shows at least half of the different lines (without numbers and blank ones) of its own text or of its target's.
    """
    bodies = {index: _bodies(text) for index, text in _results(run, compactor.config.observations)}
    turns = _turns(run)
    removed = again = 0
    for cut in inspect_run(run, compactor, len).cuts:
        at = cut.decision.message
        if not cut.original or turns[-1] == turns[at]:
            continue
        removed += 1
        later = (
            shown for index, shown in bodies.items() if index > at and 0 < turns[index] - turns[at] <= within_turns
        )
        again += any(_shows(shown, cut) for shown in later)
    return Rereading(removed, again)


def usage_of(document: Any) -> Usage:
    """Sums of the token counts that stand under `usage` in a JSON document; the counts of one message id count once."""
    found = dict(_usages(document, "0"))
    return Usage(*(_total(found, names) for names in _TOKENS.values()))


def _with_usage(path: str | Path) -> Iterator[tuple[Run, Usage]]:
    runs = list(read_runs(path))
    documents = [document for _, document in read_documents(path)] if Path(path).exists() else []
    if len(runs) == 1:
        documents = [documents]  # a session log: many lines, one run
    usages = map(usage_of, documents) if len(documents) == len(runs) else [NOT_COUNTED] * len(runs)
    return zip(runs, usages, strict=True)


def _usages(value: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every mapping under `usage`, by the id of the message that it stands in or by its place."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _usages(item, f"{place}.{number}")
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "usage" and isinstance(item, dict):
                yield str(value.get("id") or place), item
            else:
                yield from _usages(item, f"{place}.{key}")


def _total(usages: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> int | None:
    counts = [count for usage in usages.values() for count in _counts(usage, names)]
    return sum(counts) if counts else None


def _counts(usage: Mapping[str, Any], names: Sequence[str]) -> Iterator[int]:
    """The counts of one of these names, also where they stand in details of the prompt."""
    details = usage.get("prompt_tokens_details")
    for place in (usage, details if isinstance(details, dict) else {}):
        yield from (place[name] for name in names if isinstance(place.get(name), int))


def _turns(run: Run) -> list[int]:
    """The turn that each message belongs to: assistant messages so far."""
    turns, number = [], 0
    for message in run.messages:
        number += message.get("role") == "assistant"
        turns.append(number)
    return turns


def _results(run: Run, observations: str) -> Iterator[tuple[int, str]]:
    for index in range(len(run.messages)):
        if is_observation(run.messages, index, observations):
            yield index, "\n".join(text.text for text in observed_texts(run.messages, index, 0, ())[0])


def _bodies(text: str) -> set[str]:
    """The different lines (parts, where long lines are cut) of a text, without their numbers."""
    pieces, unit = cut_text(text)
    keys = [number_key(piece)[0] if unit == "line" else piece for piece in pieces]
    return {body for key in keys for body in [key if isinstance(key, str) else key[-1]] if body.strip()}


def _shows(shown: set[str], cut: Cut) -> bool:
    wanted = [_bodies(text) for text in (cut.original, cut.representative)]
    return any(len(lines & shown) >= max(1.0, SHOWN_SHARE * len(lines)) for lines in wanted)
