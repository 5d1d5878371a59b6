"""What a profile would remove from one run, why the rest stays, and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lam_vllm import __version__
from lam_vllm.compactor import Compactor
from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.score import observation_texts
from lam_vllm.lines import cut_text, join_pieces, keys_of
from lam_vllm.messages import chain_digests

Key = tuple[str, str, str, str, str]
"""Profile, run, and what decides the figures: version, config digest, digest of the messages."""
_FIRST_FIELD = '{"profile": "'


@dataclass(frozen=True, slots=True)
class Analysis:
    """Counts of one run under one profile. Tokens are the served model's.

    `observation_tokens` and `emitted_tokens` are whole texts of tool results, before and after, references included.
    `shortened` counts tool results, and so does `reasons`, by why a result stayed as it was. `first_seen_tokens` are
    lines (parts of long lines) that no earlier tool output shows; `repeats_removed_tokens` are what references stand
    for (near-duplicates in `paper`), without what short names of folders save.
    """

    profile: str
    source: str
    run: str
    observations: int
    shortened: int
    observation_tokens: int
    emitted_tokens: int
    first_seen_tokens: int
    repeats_removed_tokens: int
    stub_tokens: int
    delta_hat: float
    reasons: Mapping[str, int]
    version: str
    config_digest: str
    messages_digest: str

    @property
    def key(self) -> Key:
        """What the analysis is found by."""
        return self.profile, self.run, self.version, self.config_digest, self.messages_digest

    @property
    def removed_share(self) -> float | None:
        """Share of the tool output that is removed, net of references; None where there is no tool output."""
        return 1 - self.emitted_tokens / self.observation_tokens if self.observation_tokens else None

    @property
    def repeats_kept_tokens(self) -> int | None:
        """Tokens of repeated lines that stay; None under `paper`, which does not remove by lines alone."""
        if self.profile == "paper":
            return None
        return max(0, self.observation_tokens - self.first_seen_tokens - self.repeats_removed_tokens)


def key_of(run: Run, compactor: Compactor) -> Key:
    """What the analysis of this run by this compactor is found by."""
    messages_digest = chain_digests(run.messages, "")[-1]
    return str(compactor.config.profile), run.id, __version__, compactor.config_digest, messages_digest


def analyse(run: Run, compactor: Compactor, count_tokens: Callable[[str], int]) -> Analysis:
    """The analysis of this run.

    Raises:
        EncoderError: the encoder failed.
    """
    compaction = compactor.compact(run.messages, use_memo=False)
    report = compaction.report
    profile, _, version, config_digest, messages_digest = key_of(run, compactor)
    texts = observation_texts(run.messages, compactor.config.observations)
    emitted = observation_texts(compaction.messages, compactor.config.observations)
    return Analysis(
        profile=profile,
        source=run.source,
        run=run.id,
        observations=report.observations,
        shortened=len({decision.message for decision in compaction.decisions}),
        observation_tokens=sum(map(count_tokens, texts)),
        emitted_tokens=sum(map(count_tokens, emitted)),
        first_seen_tokens=_first_seen_tokens(texts, count_tokens),
        repeats_removed_tokens=report.removed_tokens["l0"] + report.removed_tokens["l1"],
        stub_tokens=report.stub_tokens,
        delta_hat=report.delta_hat,
        reasons=dict(report.reasons),
        version=version,
        config_digest=config_digest,
        messages_digest=messages_digest,
    )


class AnalysisFile:
    """Analyses as JSON lines, each on disk before the next is made, so that an interrupted run goes on from there."""

    def __init__(self, path: Path) -> None:
        """Reads what the file holds, if it is there; a last line that was cut short is dropped.

        Raises:
            InputFileError: the file holds something else, or cannot be read or written; names the line.
        """
        self._path = path
        try:
            path.touch()
            text = path.read_bytes().decode()
            whole, newline, rest = text.rpartition("\n")
            if rest and not _is_cut_short(rest):
                raise InputFileError(path, "the last line is no analysis", text.count("\n") + 1)
            self._known = {made.key: made for made in _analyses(path, whole.split("\n") if newline else [])}
            with path.open("rb+") as file:
                file.truncate(len((whole + newline).encode()))
        except OSError as error:
            raise InputFileError(path, error.strerror or str(error)) from None
        except UnicodeDecodeError as error:
            raise InputFileError(path, f"not UTF-8: {error.reason} at byte {error.start}") from None

    def get(self, key: Key) -> Analysis | None:
        """The analysis that the file holds for this key, or None."""
        return self._known.get(key)

    def add(self, analysis: Analysis) -> None:
        """Appends the analysis."""
        with self._path.open("a", encoding="ascii") as file:
            file.write(json.dumps(asdict(analysis)) + "\n")
        self._known[analysis.key] = analysis


def _first_seen_tokens(texts: Sequence[str], count_tokens: Callable[[str], int]) -> int:
    """Tokens of the pieces that are like none before them, counted over runs of such pieces."""
    seen: set[Any] = set()
    tokens = 0
    for text in texts:
        pieces, unit = cut_text(text)
        fresh: list[str] = []
        for piece, key in zip(pieces, keys_of(pieces, unit)[0], strict=True):
            if key in seen:
                tokens += count_tokens("".join(fresh)) if fresh else 0
                fresh = []
            else:
                seen.add(key)
                fresh.append(piece)
        tokens += count_tokens(join_pieces(fresh)) if fresh else 0
    return tokens


def _is_cut_short(line: str) -> bool:
    """Whether a line without an end may be the beginning of an analysis, and nobody else's data."""
    return line.startswith(_FIRST_FIELD) or _FIRST_FIELD.startswith(line)


def _analyses(path: Path, lines: Sequence[str]) -> list[Analysis]:
    names = {field.name for field in fields(Analysis)}
    made = []
    for number, line in enumerate(lines, 1):
        try:
            values: Any = json.loads(line)
        except ValueError:
            values = None
        if not isinstance(values, dict) or set(values) != names:
            raise InputFileError(path, "not an analysis that `lam-vllm analyze --out` wrote", number)
        made.append(Analysis(**values))
    return made
