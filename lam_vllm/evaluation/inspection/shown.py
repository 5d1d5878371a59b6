"""What the prompt shows of each tool result, in the units that stubs count, so that a stub's target can be read."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from lam_vllm.aliases import definitions, split_definitions, written_out
from lam_vllm.compactor import Compactor
from lam_vllm.lines import cut_text
from lam_vllm.stubs import escape, parse_stub
from lam_vllm.types import Decision, Observation
from lam_vllm.windows import fixed_windows


class ShownResults:
    """The results of one run in order; a text is added after those that it may refer to, and before itself is read."""

    def __init__(self, compactor: Compactor) -> None:
        self._config = compactor.config
        self._encoder = compactor.encoder
        self._units: list[list[str]] = []

    def open_result(self) -> int:
        """The ordinal of the next result, counted from 1."""
        self._units.append([])
        return len(self._units)

    def add(self, observation: Observation, decisions: list[Decision], emitted: str) -> None:
        """Add a text of the result opened last: what arrived, the cuts in it in order, and what became of it."""
        self._units[-1] += self._units_of(observation, decisions, emitted)

    def representative(self, decision: Decision, original: str) -> str:
        """The text that a decision's stub names; `original`, the removed text, where it names none."""
        if decision.layer == "alias" or not decision.stub:
            return original
        first, last = decision.target_lines or (1, None)
        stub = parse_stub(decision.stub)
        times = stub.times if stub is not None and stub.times else 1
        text = "".join(self._units[decision.target_result - 1][first - 1 : last]) * times
        # A text's last line has no newline, and has one where it is printed with more lines below.
        return text.removesuffix("\n") if text.count("\n") > original.count("\n") else text

    def _units_of(self, observation: Observation, decisions: list[Decision], emitted: str) -> list[str]:
        """Lines as printed, with short names written out; parts; the encoder's windows in `paper`."""
        text, encoder = observation.text, self._encoder
        if self._config.profile == "paper" and encoder is not None and not self._passes_whole(observation):
            windows = fixed_windows(text, encoder.token_offsets, encoder.window_tokens)
            return [text[window.start : window.end] for window in windows]
        pieces, unit = cut_text(text)
        if unit == "part":
            return _printed_parts(pieces, decisions, emitted)
        aliases, lines = split_definitions(emitted.split("\n"))
        return [line + "\n" for line in (*definitions(aliases), *(written_out(line, aliases) for line in lines))]

    def _passes_whole(self, observation: Observation) -> bool:
        """What passes whole is counted by lines, also in `paper`."""
        text = observation.text
        unread = observation.excluded or not text.strip() or escape(text) is not None
        return unread or len(text.encode(errors="surrogatepass")) > self._config.max_observation_bytes


def kept_lines(decisions: list[Decision], emitted: str) -> list[str]:
    """For each cut, the lines that its stub says stand below it; only `like` stubs say so."""
    lines = emitted.split("\n")
    aliases, _ = split_definitions(lines)
    kept, place = [], 0
    for decision in decisions:
        stub = parse_stub(decision.stub)
        below: list[str] = []
        if stub is not None and stub.kind == "like":
            place = lines.index(decision.stub, place) + 1
            below = [written_out(line, aliases) for line in lines[place : place + stub.many]]
        kept.append("\n".join(below))
    return kept


def _printed_parts(pieces: list[str], decisions: list[Decision], emitted: str) -> list[str]:
    """The parts that stay, and each stub as one: as the planner counted them."""
    offsets = [0, *accumulate(map(len, pieces))]
    shown: list[str] = []
    last = 0
    for decision in decisions:
        shown += [*pieces[last : bisect_left(offsets, decision.start)], decision.stub]
        last = bisect_left(offsets, decision.end)
    # A last line that is empty has no characters: whether it was cut shows in what was emitted.
    ends = decisions and decisions[-1].end == offsets[-1] - 1 and emitted.endswith(decisions[-1].stub)
    return shown if ends else shown + pieces[last:]
