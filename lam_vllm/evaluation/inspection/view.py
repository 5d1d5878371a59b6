"""One run as a reader goes through it: turns, messages, texts, and every cut in its place beside what stands for it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from lam_vllm.compactor import Compactor
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.inspection.shown import ShownResults, kept_lines
from lam_vllm.messages import is_observation, observed_texts
from lam_vllm.types import Compaction, Decision, Message, Observation, Report


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of tool output by the served model's tokenizer: as it came, taken out of it, and spent on stubs."""

    original: int = 0
    removed: int = 0
    stubs: int = 0

    @property
    def net(self) -> int:
        """Tokens removed less the stubs that stand for them."""
        return self.removed - self.stubs

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.original + other.original, self.removed + other.removed, self.stubs + other.stubs)


@dataclass(frozen=True, slots=True)
class Cut:
    """One decision, `number` counted from 1 over the run, with the texts that it speaks of.

    `representative` is the text that the stub names, as the prompt shows it (the removed text itself where the stub
    names none: lines that `paper` drops silently, and aliases). `kept` are the lines of the span that stay, below;
    `distance` is the l2 distance of the two in layer `l1`.
    """

    number: int
    decision: Decision
    original: str
    representative: str
    kept: str = ""
    distance: float = 0.0

    @property
    def tokens(self) -> Tokens:
        """What this cut took and cost."""
        return Tokens(0, self.decision.removed_tokens, self.decision.stub_tokens)


Span: TypeAlias = str | Cut


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a message. The spans tile its text: kept text as it came, and the cuts."""

    kind: Literal["text", "reasoning", "call", "other"]
    spans: tuple[Span, ...]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message: `result` is the ordinal that stubs use where it is a tool result, `name` its tool where known."""

    index: int
    role: str
    name: str
    result: int | None
    blocks: tuple[Block, ...]
    tokens: Tokens = Tokens()


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the assistant and what follows it up to the next one; turn 0 is what stands before the first."""

    number: int
    entries: tuple[Entry, ...]

    @property
    def tokens(self) -> Tokens:
        """Sums over the messages."""
        return sum((entry.tokens for entry in self.entries), Tokens())


@dataclass(frozen=True, slots=True)
class Inspection:
    """A whole run with every cut in place, and the report of its compaction."""

    run: str
    source: str
    turns: tuple[Turn, ...]
    report: Report

    @property
    def tokens(self) -> Tokens:
        """Sums over the turns."""
        return sum((turn.tokens for turn in self.turns), Tokens())

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Every cut, from top to bottom."""
        blocks = (block for turn in self.turns for entry in turn.entries for block in entry.blocks)
        return tuple(span for block in blocks for span in block.spans if isinstance(span, Cut))


def inspect_run(run: Run, compactor: Compactor, count_tokens: Callable[[str], int]) -> Inspection:
    """The run as this compactor shortens it.

    Raises:
        EncoderError: the encoder failed.
    """
    messages = list(run.messages)
    compaction = compactor.compact(messages)
    reader = _Reader(messages, compaction, compactor, count_tokens)
    turns: list[list[Entry]] = [[]]
    for index, message in enumerate(messages):
        if message.get("role") == "assistant":
            turns.append([])
        turns[-1].append(reader.read(index))
    numbered = tuple(Turn(number, tuple(entries)) for number, entries in enumerate(turns) if entries)
    return Inspection(run.id, run.source, numbered, compaction.report)


@dataclass
class _Reader:
    """Reads messages in order, since a stub names what was read before."""

    messages: Sequence[Message]
    compaction: Compaction
    compactor: Compactor
    count_tokens: Callable[[str], int]
    names: dict[str, str] = field(default_factory=dict)
    cuts: int = 0

    def __post_init__(self) -> None:
        self.shown = ShownResults(self.compactor)
        self.distances = iter(self.compaction.report.distances)
        self.decisions: dict[tuple[int, int | None], list[Decision]] = defaultdict(list)
        for decision in self.compaction.decisions:
            self.decisions[decision.message, decision.part].append(decision)

    def read(self, index: int) -> Entry:
        """Message `index`, the next one in order."""
        message, config = self.messages[index], self.compactor.config
        observed: tuple[Observation, ...] = ()
        result = None
        if is_observation(self.messages, index, config.observations):
            result = self.shown.open_result()
            observed = observed_texts(self.messages, index, result, config.exclude_tools)[0]
        original = sum(self.count_tokens(observation.text) for observation in observed)
        blocks = self._blocks(message, {one.part: one for one in observed})
        cuts = [span for block in blocks for span in block.spans if isinstance(span, Cut)]
        tokens = sum((cut.tokens for cut in cuts), Tokens(original))
        return Entry(index, str(message.get("role")), self._name(message), result, blocks, tokens)

    def _blocks(self, message: Message, observed: Mapping[int | None, Observation]) -> tuple[Block, ...]:
        blocks = []
        for part, text, kind in _content(message):
            if part in observed:
                blocks.append(Block("text", tuple(self._spans(observed[part]))))
            else:
                blocks.append(Block("text", (text,)) if text else Block("other", (), kind))
        calls = [Block("call", (arguments,), name) for name, arguments in self._calls(message)]
        return (*_reasoning(message), *blocks, *calls)

    def _spans(self, observation: Observation) -> Iterator[Span]:
        """The text and its cuts in order; what is shown of it is then known."""
        text = observation.text
        decisions = self.decisions[observation.message, observation.part]
        emitted = _text_at(self.compaction.messages[observation.message], observation.part)
        self.shown.add(observation, decisions, emitted)
        last = 0
        for decision, kept in zip(decisions, kept_lines(decisions, emitted), strict=True):
            if decision.start > last:
                yield text[last : decision.start]
            self.cuts += 1
            original = text[decision.start : decision.end]
            distance = next(self.distances) if decision.layer == "l1" else 0.0
            yield Cut(self.cuts, decision, original, self.shown.representative(decision, original), kept, distance)
            last = decision.end
        if last < len(text) or not decisions:
            yield text[last:]

    def _calls(self, message: Message) -> list[tuple[str, str]]:
        """Name and arguments of the message's tool calls; their ids are remembered for the results."""
        calls = message.get("tool_calls")
        found = []
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                name = str(function.get("name"))
                self.names |= {call["id"]: name} if isinstance(call.get("id"), str) else {}
                found.append((name, _as_text(function.get("arguments", ""))))
        return found

    def _name(self, message: Message) -> str:
        name, call_id = message.get("name"), message.get("tool_call_id")
        if isinstance(name, str):
            return name
        return self.names.get(call_id, "") if isinstance(call_id, str) else ""


def _reasoning(message: Message) -> list[Block]:
    reasoning = message.get("reasoning", message.get("reasoning_content"))
    return [Block("reasoning", (reasoning,))] if isinstance(reasoning, str) and reasoning else []


def _content(message: Message) -> Iterator[tuple[int | None, str, str]]:
    """Index (None: the content is no list), text and kind of each part; of media only the kind is told."""
    content = message.get("content")
    if isinstance(content, list):
        for place, part in enumerate(content):
            text, kind = (part.get("text"), part.get("type")) if isinstance(part, dict) else (part, None)
            yield place, text if isinstance(text, str) else "", str(kind or type(part).__name__)
    elif content is not None and content != "":
        yield None, content if isinstance(content, str) else "", type(content).__name__


def _text_at(message: Any, part: int | None) -> str:
    content = message["content"]
    return str(content if part is None else content[part]["text"])


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
