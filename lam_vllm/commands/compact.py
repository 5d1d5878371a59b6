"""`lam-vllm compact`: a file of conversations, written again with shorter messages and an account of every cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lam_vllm.commands.tokenizer import load_token_counter
from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig, load_config, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.encoders.load import load_encoder
from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.evaluation.documents import line_count, read_documents
from lam_vllm.messages import is_observation, observed_texts
from lam_vllm.types import Compaction, Message

MEASURED = ("seconds", "work", "new_removed_tokens", "new_stub_tokens", "new_distances", "new_boundary_pairs")
"""Fields of a report that tell about the machine and the memo; a file made twice is the same file without them."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one conversation lost. Tokens are those of its observations."""

    name: str
    observations: int
    original_tokens: int
    removed_tokens: dict[str, int]
    stub_tokens: int
    delta_hat: float


def make_compactor(
    flags: dict[str, Any], config_path: Path | None, encoder_name: str | None, tokenizer: str | None
) -> tuple[Compactor, Callable[[str], int]]:
    """The compactor that flags (over the YAML file) ask for, and its token counter: the encoder's unless one is named.

    Raises:
        InputFileError: the YAML file cannot be read.
        OptionError: an option has a value that it cannot have, or an encoder or tokenizer is needed and not named.
        MissingExtraError: the encoder needs an extra that is not installed.
        EncoderError: the encoder cannot be loaded.
    """
    config = _config(flags, config_path)
    encoder = load_encoder(encoder_name, config.threshold_cos) if encoder_name else None
    if config.profile in ("guarded", "paper") and encoder is None:
        raise OptionError("encoder", None, f"one for profile {config.profile}, such as minilm; exact needs none")
    if tokenizer is None and encoder is None:
        raise OptionError("tokenizer", None, "the served model's tokenizer, as file, folder or hub name (no encoder)")
    count_tokens = load_token_counter(tokenizer) if tokenizer else _encoder_counter(encoder)
    name = tokenizer or (encoder.name if encoder else "")
    return Compactor(config, count_tokens, encoder, tokenizer_name=name), count_tokens


def compact_file(source: Path, target: Path, compactor: Compactor, count_tokens: Callable[[str], int]) -> list[Row]:
    """One row for each conversation of `source`. `target` appears when all of them are written, or not at all.

    Raises:
        InputFileError: a line of `source` is not an object with `messages`, or `target` cannot be written.
    """
    rows = []
    with _whole_or_nothing(target) as out:
        lines = track(
            read_documents(source), "compacting", total=line_count(source), console=Console(stderr=True), transient=True
        )
        for line, document in lines:
            messages = _messages(source, line, document)
            try:
                compaction = compactor.compact(messages)
                original = _observation_tokens(messages, compactor.config.observations, count_tokens)
                account = {**_account(compaction), "original_tokens": original}
                out.write(_json({**document, "messages": compaction.messages, "lam": account}) + "\n")
            except RecursionError:  # reading takes a little more depth than writing
                raise InputFileError(source, "JSON nested too deeply", line) from None
            rows.append(_row(_printable(document.get("id", f"line {line}")), original, compaction))
    return rows


def table(rows: list[Row], profile: str) -> Table:
    """The rows, each with its net share."""
    made = Table(title=f"observation tokens, profile {profile}", box=SIMPLE_HEAD, pad_edge=False)
    made.add_column("run", overflow="fold", min_width=24)
    for name in ("results", "tokens", "l0", "l1", "stubs", "net", "delta_hat"):
        made.add_column(name, justify="right")
    for row in rows:
        saved = sum(row.removed_tokens.values()) - row.stub_tokens
        made.add_row(
            row.name,
            f"{row.observations:,}",
            f"{row.original_tokens:,}",
            f"{row.removed_tokens.get('l0', 0):,}",
            f"{row.removed_tokens.get('l1', 0):,}",
            f"{row.stub_tokens:,}",
            f"{100 * saved / row.original_tokens:.1f}%" if row.original_tokens else "-",
            f"{row.delta_hat:.3f}",
        )
    return made


def _config(flags: dict[str, Any], path: Path | None) -> CompactorConfig:
    base = load_config(path).model_dump(exclude_unset=True) if path else {}
    return make_config({**base, **{name: value for name, value in flags.items() if value is not None}})


def _encoder_counter(encoder: Encoder | None) -> Callable[[str], int]:
    assert encoder is not None  # the caller's check
    return lambda text: len(encoder.token_offsets(text))


def _messages(source: Path, line: int, document: Any) -> list[Message]:
    messages = document.get("messages") if isinstance(document, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InputFileError(source, "expected an object with `messages`, a list of objects", line)
    return messages


def _observation_tokens(messages: list[Message], observations: str, count_tokens: Callable[[str], int]) -> int:
    return sum(
        count_tokens(observation.text)
        for index in range(len(messages))
        if is_observation(messages, index, observations)
        for observation in observed_texts(messages, index, 0, ())[0]
    )


def _json(value: Any) -> str:
    """JSON as readable as UTF-8 can hold it: a lone surrogate has no place there but behind a backslash."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _printable(text) == text else json.dumps(value)


def _printable(value: Any) -> str:
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def _account(compaction: Compaction) -> dict[str, Any]:
    report = {key: value for key, value in asdict(compaction.report).items() if key not in MEASURED}
    distances = iter(compaction.report.distances)
    decisions = [
        {**decision._asdict(), "distance": next(distances) if decision.layer == "l1" else 0.0}
        for decision in compaction.decisions
    ]
    return {**report, "decisions": decisions}


def _row(name: str, original_tokens: int, compaction: Compaction) -> Row:
    report = compaction.report
    removed = dict(report.removed_tokens)
    return Row(name, report.observations, original_tokens, removed, report.stub_tokens, report.delta_hat)


@contextmanager
def _whole_or_nothing(target: Path) -> Iterator[IO[str]]:
    try:
        with NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}-", delete=False
        ) as draft:
            path = Path(draft.name)
            try:
                yield draft
            except BaseException:
                path.unlink()
                raise
        path.replace(target)
    except OSError as error:
        raise InputFileError(target, f"cannot be written: {error.strerror or error}") from None
