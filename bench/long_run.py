"""One turn with little history and the same turn with much: what grows with the length of a conversation.

The conversation is put together from the corpus: the first observations, over all runs in order, that have
`TURN_TOKENS` tokens, each cut after exactly so many, one a turn. The turn that is measured comes after `EARLY - 1` or
after `LATE - 1` of them and brings the same observation in both places, so that nothing but the history differs. It is
measured with `ARRIVALS` different observations, none of which is in the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from unittest.mock import patch

from corpus_data import SERVED_MODEL, corpus_runs, observed
from tokenizers import Tokenizer

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders import Encoder
from lam_vllm.types import Message, Work

EARLY, LATE = 10, 100
TURN_TOKENS = 1_000
ARRIVALS = 10
REPEATS = 5


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn took, summed over the arrivals; CPU seconds of the whole call, and without finding the prefix."""

    lines: int = 0
    windows: int = 0
    encoder_calls: int = 0
    cpu_seconds: float = 0.0
    new_cpu_seconds: float = 0.0

    def over(self, other: Turn) -> dict[str, float]:
        """This turn as a multiple of the other."""
        return {name: _ratio(getattr(self, name), getattr(other, name)) for name in self.__slots__}


def measure_turns(profile: str, count_tokens: Callable[[str], int], encoder: Encoder | None) -> tuple[Turn, Turn]:
    """The early and the late turn under this profile, the memo warm: it knows the history and nothing else."""
    history, arrivals = conversation()

    def new_compactor() -> Compactor:
        return Compactor(CompactorConfig.model_validate({"profile": profile}), count_tokens, encoder)

    early, late = (_turn(new_compactor, history[: 2 * (turn - 1)], arrivals) for turn in (EARLY, LATE))
    return early, late


def conversation() -> tuple[list[Message], list[list[Message]]]:
    """The messages of `LATE - 1` turns, and the messages of each turn that may arrive after them."""
    texts = _equal_texts()
    history = [message for _ in range(LATE - 1) for message in _messages(next(texts))]
    rest = list(texts)
    return history, [_messages(text) for text in rest[:: len(rest) // ARRIVALS][:ARRIVALS]]


def _equal_texts() -> Iterator[str]:
    """Different observations of the corpus, each cut after `TURN_TOKENS` tokens."""
    tokenizer = Tokenizer.from_file(str(SERVED_MODEL / "tokenizer.json"))
    seen = set()
    for run in corpus_runs():
        for text in observed(run.messages):
            offsets = tokenizer.encode(text, add_special_tokens=False).offsets
            if len(offsets) < TURN_TOKENS:
                continue
            cut = text[: offsets[TURN_TOKENS - 1][1]]
            # Cut inside a word, the last token may become several.
            if cut not in seen and len(tokenizer.encode(cut, add_special_tokens=False)) == TURN_TOKENS:
                seen.add(cut)
                yield cut


def _messages(text: str) -> list[Message]:
    return [{"role": "assistant", "content": "Next."}, {"role": "tool", "content": text}]


def _turn(new_compactor: Callable[[], Compactor], history: list[Message], arrivals: Sequence[list[Message]]) -> Turn:
    works: list[Work] = []
    whole, new = [], []
    for _ in range(REPEATS):
        spent = [_arrive(new_compactor(), history, arrival) for arrival in arrivals]
        works = [work for work, _, _ in spent]
        whole.append(sum(seconds for _, seconds, _ in spent))
        new.append(sum(seconds for _, _, seconds in spent))
    assert all(work.known_messages == len(history) for work in works), "the memo was to be warm"
    return Turn(
        sum(work.new_lines for work in works),
        sum(work.new_windows for work in works),
        sum(work.encoder_calls for work in works),
        median(whole),
        median(new),
    )


def _arrive(compactor: Compactor, history: list[Message], arrival: list[Message]) -> tuple[Work, float, float]:
    compactor.compact(history)
    messages = [*history, *arrival]
    with patch("lam_vllm.compactor.perf_counter", process_time):  # its stage times are then CPU time
        began = process_time()
        report = compactor.compact(messages).report
        seconds = process_time() - began
    return report.work, seconds, seconds - report.seconds["recognise"]


def _ratio(late: float, early: float) -> float:
    """1 where there is nothing on either side."""
    return late / early if early else 1.0 if not late else float("inf")
