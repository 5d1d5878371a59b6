"""What an evaluation works with: token counter, encoders that remember, the file of rows, and the methods."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from lam_vllm.commands.tokenizer import load_token_counter
from lam_vllm.encoders.base import Encoder
from lam_vllm.encoders.load import load_encoder
from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.evaluation.baselines import Inputs, WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.encoder_variants import StaticEncoder, packaged_folder, with_cls_pooling
from lam_vllm.evaluation.measure import code_digest
from lam_vllm.evaluation.remembered import RememberedEncoder
from lam_vllm.evaluation.rows import Row, RowStore, digest
from lam_vllm.evaluation.score import Clock

CLS, STATIC = "minilm-cls", "minilm-static"
"""Encoders made out of the packaged one: its weights pooled otherwise, and a static model distilled from them."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was asked for. The first encoder serves the methods; all of them are compared.

    `models` are the fields of `Inputs` that name weights and servers, as far as they were given.
    """

    tokenizer: str | None
    out: Path
    encoders: Sequence[str] = ()
    methods: Sequence[str] = ()
    sweep: bool = False
    models: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setup:
    """The inputs of the methods, the file that keeps their rows, and the clock that knows what is remembered."""

    inputs: Inputs
    store: RowStore[Row]
    cpu_seconds: Clock


@contextmanager
def make_setup(options: Options, runs: Sequence[Run]) -> Iterator[Setup]:
    """What an evaluation of these runs works with; makes the folder `out` and keeps rows and embeddings there.

    Raises:
        OptionError: neither a tokenizer nor an encoder is named, or there is no such tokenizer.
        MissingExtraError, EncoderError: as `load_encoder`.
        InputFileError: the folder cannot be made, or its file of rows is none.
    """
    if options.tokenizer is None and not options.encoders:
        raise OptionError("tokenizer", None, "the served model's tokenizer, as file, folder or hub name (no encoder)")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputFileError(options.out, error.strerror or str(error)) from None
    encoder = open_encoder(options.encoders[0], options.out) if options.encoders else None
    windows = WindowEmbeddings(encoder, encoder.cpu_seconds) if encoder else None
    inputs = Inputs(_counter(options.tokenizer, encoder), runs, encoder, windows, **options.models)
    models = [f"{name} {value}" for name, value in sorted(options.models.items()) if name != "summary_api_key"]
    named = [_named(options.tokenizer), encoder.fingerprint if encoder else "", *models]
    store = RowStore(options.out / "rows.jsonl", digest(code_digest(), *named), Row)
    try:
        yield Setup(inputs, store, windows.cpu_seconds if windows else process_time)
    finally:
        if encoder is not None:
            encoder.close()


def open_encoder(name: str, out: Path) -> RememberedEncoder:
    """The encoder called `name`, or a variant of the packaged one; what it encodes is kept in a file in `out`.

    Raises:
        MissingExtraError, EncoderError, InputFileError: as `load_encoder`.
    """
    return RememberedEncoder(_load(name, out), out / "embeddings.sqlite3")


def _load(name: str, out: Path) -> Encoder:
    if name == STATIC:
        return StaticEncoder(load_encoder("minilm"), packaged_folder())
    if name == CLS:
        folder = out / name
        return load_encoder(str(folder if folder.is_dir() else with_cls_pooling(packaged_folder(), folder)))
    return load_encoder(name)


def _counter(tokenizer: str | None, encoder: Encoder | None) -> Callable[[str], int]:
    if tokenizer is not None:
        return load_token_counter(tokenizer)
    assert encoder is not None  # the caller's check
    offsets = encoder.token_offsets
    return lambda text: len(offsets(text))


def _named(tokenizer: str | None) -> str:
    """The bytes of a tokenizer that is a file, the name of one that a hub has."""
    if tokenizer is None or not Path(tokenizer).exists():
        return str(tokenizer)
    path = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
    return hashlib.sha256(path.read_bytes()).hexdigest()
