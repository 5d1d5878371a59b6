"""What a second read still says of the lines that changed since the first, and whether what its stubs say is true."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Literal, NamedTuple

from lam_vllm.compactor import Compactor
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.inspection.view import Cut, inspect_run
from lam_vllm.evaluation.readable import shown_by
from lam_vllm.evaluation.rereads import Reread
from lam_vllm.lines import Unit, cut_text, renumbered
from lam_vllm.stubs import parse_stub
from lam_vllm.types import Message

Fate = Literal["shown", "named", "hidden"]
"""A changed line stands verbatim in the second read as emitted; or a stub there names lines that show it, earlier in
the prompt; or neither."""


@dataclass(frozen=True, slots=True)
class SecondReads:
    """Counts of one reread or, added, of several. `changed` = `shown` + `named` + `hidden`, blank lines left out.

    `new` of the changed lines stood nowhere before, `new_shown` of them stand in the second read itself. `hiding` of
    the `rereads` hide a changed line. `deleted` lines of first reads are gone. `likes` stubs in the second reads say
    "like" and `untrue` stubs do not give back the lines that they stand for (those of `paper` do not say that they do).
    """

    rereads: int = 0
    changed: int = 0
    shown: int = 0
    named: int = 0
    hidden: int = 0
    new: int = 0
    new_shown: int = 0
    hiding: int = 0
    deleted: int = 0
    likes: int = 0
    untrue: int = 0

    def __add__(self, other: SecondReads) -> SecondReads:
        return SecondReads(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def second_reads(run: Run, compactor: Compactor, rereads: Sequence[Reread]) -> list[SecondReads]:
    """What the compacted run says of each reread found in it. A stub counts once for each reread that it is in.

    Raises:
        EncoderError: the encoder failed.
    """
    cuts: defaultdict[tuple[int, int | None], list[Cut]] = defaultdict(list)
    for cut in inspect_run(run, compactor, len).cuts:
        cuts[cut.decision.message, cut.decision.part].append(cut)
    emitted = compactor.compact(run.messages).messages
    observations = compactor.config.observations
    shown = {index: set(one.lines) for index, one in shown_by(emitted, observations, compacted=True).items()}
    counts = []
    for reread in rereads:
        later, part = reread.later, reread.part
        text, here = _text(run.messages[later], part), cuts[later, part]
        fates = fates_of(text, here, shown[later], _text(emitted[later], part))
        counts.append(_counts(reread, fates, here, text))
    return counts


def fates_of(text: str, cuts: Sequence[Cut], shown: set[str], emitted: str) -> list[Fate]:
    """What became of each piece (`lines.cut_text`) of a text: `shown` are the lines, short names written out, that
    `emitted` shows besides its stubs. A piece that a cut took does not count as shown because another is equal."""
    pieces, unit = cut_text(text)
    stands_in = emitted if unit == "part" else shown  # parts within lines, or whole lines
    taken = [_Taken.by(cut, unit) for cut in cuts if cut.original]
    fates: list[Fate] = []
    end = 0
    for piece in pieces:
        start, end, line = end, end + len(piece), piece.removesuffix("\n")
        over = [one for one in taken if one.start < end and one.end > start]
        if line in stands_in and all(line in one.kept for one in over):
            fates.append("shown")
        else:
            fates.append("named" if any(line in one.named for one in over) else "hidden")
    return fates


class _Taken(NamedTuple):
    """Characters that a cut took, the lines of them that stay below its stub, and what the stub names."""

    start: int
    end: int
    kept: list[str]
    named: str | set[str]

    @staticmethod
    def by(cut: Cut, unit: Unit) -> _Taken:
        lines = _named(cut)
        named = "\n".join(lines) if unit == "part" else set(lines)
        return _Taken(cut.decision.start, cut.decision.end, cut.kept.split("\n"), named)


def tells_the_truth(cut: Cut, text: str) -> bool:
    """Whether the lines that a stub names, without those that it says are gone and with those that it says are below,
    are the lines that it stands for: the same ones, as often each. `text` is the whole text that the cut is in."""
    said = +Counter(_named(cut)) + Counter(cut.kept.split("\n") if _below(cut) else ())
    original = cut.original.removesuffix("\n").split("\n")
    last = [""] if cut.decision.end == len(text) and text.endswith("\n") else []  # an empty last line, cut or not
    return said in (Counter(original), Counter(original + last))


def _counts(reread: Reread, fates: Sequence[Fate], cuts: Sequence[Cut], text: str) -> SecondReads:
    of = Counter(fates[place] for place in reread.changed)
    return SecondReads(
        rereads=1,
        changed=len(reread.changed),
        shown=of["shown"],
        named=of["named"],
        hidden=of["hidden"],
        new=len(reread.new),
        new_shown=sum(fates[place] == "shown" for place in reread.new),
        hiding=of["hidden"] > 0,
        deleted=len(reread.deleted),
        likes=sum(cut.decision.stub.startswith("[like lines") for cut in cuts),
        untrue=sum(not tells_the_truth(cut, text) for cut in cuts if _speaks_of_lines(cut)),
    )


def _named(cut: Cut) -> list[str]:
    """The lines that a stub names, as they would read in its place: numbers moved, those that it says are gone left
    out. None for what was taken without a stub."""
    stub = parse_stub(cut.decision.stub)
    if stub is None or stub.kind == "alias":
        return []
    lines = cut.representative.removesuffix("\n").split("\n")
    if stub.kind == "repeat":
        return [renumbered(line, stub.shift * (place // stub.many + 1)) for place, line in enumerate(lines)]
    gone = {place for first, last in stub.gone for place in range(first, last + 1)}
    return [renumbered(line, cut.decision.shift) for place, line in enumerate(lines, stub.first) if place not in gone]


def _speaks_of_lines(cut: Cut) -> bool:
    stub = parse_stub(cut.decision.stub)
    return stub is not None and stub.kind not in ("alias", "window")


def _below(cut: Cut) -> int:
    stub = parse_stub(cut.decision.stub)
    return stub.many if stub is not None and stub.kind == "like" else 0


def _text(message: Message, part: int | None) -> str:
    content = message["content"]
    return str(content if part is None else content[part]["text"])
