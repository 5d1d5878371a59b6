"""Questions about recorded runs whose answer stands only in text that a reference names.

Each is a small conversation: the opening of a real task; two or three of the run's tool results, whole, the last of
which repeats some of another; a question, and the beginning of an answer. With the plugin on, the answer's only place
in the prompt is the text that one of the references names; a question for which that cannot be shown is not made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from wording_templates import TEMPLATES, Asked, Passage, fit
from wordings import WORDINGS, Placed, references_of, reworded

from lam_vllm import Compaction, Compactor, CompactorConfig
from lam_vllm.evaluation.corpus import Run
from lam_vllm.lines import cut_parts
from lam_vllm.stubs import Stub
from lam_vllm.types import Message

KINDS = ("result", "range", "same_result", "next", "above", "repeat", "shifted", "parts")
PER_QUOTA = 5
MOST_TOKENS = 1_100
ASIDE_TOKENS = 200
OPENING_CHARACTERS = 300
SYSTEM = "You work with tools. Answer questions about what the tools printed."

TokenCounter = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Question:
    """A conversation, the question last; how the answer is begun for the model; and what a right reply holds.

    `kind` is that of the reference whose text holds the answer; `template` says how the question is put. `id` names
    run, kind and template, and for a path the path.
    """

    id: str
    run: str
    source: str
    kind: str
    template: str
    messages: tuple[Message, ...]
    begun: str
    answer: str


def stub_questions(runs: Sequence[Run], count_tokens: TokenCounter) -> list[Question]:
    """At most `PER_QUOTA` questions for each kind of reference and template, one of a run, no answer twice.

    Which ones is fixed by digests of the runs' names; no model is asked.
    """
    compactor = Compactor(CompactorConfig(profile="exact"), count_tokens)
    chosen: dict[str, Question] = {}
    filled: Counter[tuple[str, str]] = Counter()
    answers: set[str] = set()
    for question in (found for run in in_fixed_order(runs) for found in _questions_of(run, compactor, count_tokens)):
        quota = (question.kind, question.template)
        if question.id not in chosen and filled[quota] < PER_QUOTA and question.answer not in answers:
            filled[quota] += 1
            answers.add(question.answer)
            chosen[question.id] = question
    return sorted(chosen.values(), key=lambda question: (KINDS.index(question.kind), question.id))


def in_fixed_order(runs: Sequence[Run]) -> list[Run]:
    """The runs, sources in turn, each source's in the order of their names' digests: no source fills a quota alone."""
    ordered = sorted(runs, key=lambda run: sha256(run.id.encode()).digest())
    rank: Counter[str] = Counter()
    places = {}
    for run in ordered:
        places[run.id] = rank[run.source]
        rank[run.source] += 1
    return sorted(ordered, key=lambda run: places[run.id])


def _questions_of(run: Run, compactor: Compactor, count_tokens: TokenCounter) -> Iterator[Question]:
    """The questions that this run's conversations allow, of each reference and template the first."""
    for messages in _conversations(run, compactor, count_tokens):
        compaction = compactor.compact(messages)
        for placed in references_of(messages, compaction):
            if placed.message != len(messages) - 1:
                continue
            passage = _passage(messages[-1]["content"], placed, compaction)
            for template, make in TEMPLATES.items():
                some = sorted(make(passage), key=lambda asked: sha256(asked.begun.encode()).digest())
                asked = next((asked for asked in some if fair(asked, messages, compaction, placed)), None)
                if asked is not None:
                    yield Question(
                        id=f"{run.id}#{kind_of(placed.reference.stub)}:{template}",
                        run=run.id,
                        source=run.source,
                        kind=kind_of(placed.reference.stub),
                        template=template,
                        messages=(*messages, {"role": "user", "content": asked.words}),
                        begun=asked.begun,
                        answer=asked.answer,
                    )


def _conversations(run: Run, compactor: Compactor, count_tokens: TokenCounter) -> Iterator[list[Message]]:
    """Small conversations of this run: a result, one that it repeats, and a short one that came before both."""
    whole = compactor.compact(run.messages)
    results = [index for index, message in enumerate(run.messages) if message["role"] == "tool"]
    sizes = {index: count_tokens(run.messages[index]["content"]) for index in results}
    pairs = {(results[decision.target_result - 1], decision.message) for decision in whole.decisions if decision.stub}
    for named, holder in sorted(pairs):
        aside = [index for index in results if index < named and sizes[index] <= ASIDE_TOKENS][-1:]
        shown = sorted({*aside, named, holder})
        if sum(sizes[index] for index in shown) <= MOST_TOKENS:
            yield [*_opening(run), *(turn for index in shown for turn in _turn(run, index))]


def _opening(run: Run) -> list[Message]:
    task = next((str(message["content"]) for message in run.messages if message["role"] == "user"), "")
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task[:OPENING_CHARACTERS]}]


def _turn(run: Run, index: int) -> list[Message]:
    """A tool result behind the end of what the assistant said before it."""
    said = next((message["content"] for message in run.messages[index::-1] if message["role"] == "assistant"), "")
    return [
        {"role": "assistant", "content": str(said)[-OPENING_CHARACTERS:]},
        {"role": "tool", "content": run.messages[index]["content"]},
    ]


def _passage(text: str, placed: Placed, compaction: Compaction) -> Passage:
    """What a reference in `text` stands for; parts of lines are cut apart as the plugin cuts them."""
    stub = placed.reference.stub
    removed = text[placed.start : placed.end].removesuffix("\n")
    before = _kept_before(text, placed, compaction)
    if stub.unit == "line":
        return Passage(removed.split("\n"), before, "\n")
    return Passage([part for line in removed.split("\n") for part in cut_parts(line)], before, "")


def _kept_before(text: str, placed: Placed, compaction: Compaction) -> list[str]:
    """The lines between this reference and the one before it in the same result."""
    ends = [one.end for one in compaction.decisions if one.message == placed.message and one.end <= placed.start]
    kept = text[max(ends, default=0) : placed.start]
    return kept.removesuffix("\n").split("\n") if kept.strip() and kept.endswith("\n") else []


def kind_of(stub: Stub) -> str:
    """The group that a stub is counted in."""
    return "parts" if stub.unit == "part" else "shifted" if stub.shift else stub.kind


def fair(asked: Asked, messages: Sequence[Message], compaction: Compaction, placed: Placed) -> bool:
    """Whether the answer stands in the removed text and, of all that is read, only in the text named instead."""
    removed = messages[placed.message]["content"][placed.start : placed.end]
    read = [str(message["content"]) for message in compaction.messages]
    return (
        fit(asked)
        and occurrences(asked.answer, removed) > 0
        and sum(occurrences(asked.key, text) for text in read) == 1
        and sum(occurrences(asked.answer, text) for text in (*read, asked.words, asked.begun)) == 1
        and not _told_by_a_wording(asked.answer, messages, compaction)
    )


def _told_by_a_wording(answer: str, messages: Sequence[Message], compaction: Compaction) -> bool:
    """Whether some wording prints the answer in a reference: those that quote might."""
    read = (reworded(messages, compaction, wording) for wording in WORDINGS.values())
    return any(sum(occurrences(answer, str(message["content"])) for message in some) != 1 for some in read)


def occurrences(text: str, inside: str) -> int:
    """How often a text stands inside another, not as part of a longer word, number or path."""
    return len(re.findall(rf"(?<!\w){re.escape(text)}(?!\w|/\w)", inside))
