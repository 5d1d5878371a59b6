"""`lam-vllm calibrate device`: the performance model's constants on this machine, and of an engine that runs on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lam_vllm.commands.tokenizer import load_token_counter
from lam_vllm.encoders.load import load_encoder
from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.evaluation.live.client import Client
from lam_vllm.evaluation.live.probing import REQUESTS, probe, served_model
from lam_vllm.performance_model import index_rates, rates
from lam_vllm.performance_model.calibrate import (
    Timing,
    effective_bandwidth,
    effective_prefill_rate,
    fit_served,
    relative_errors,
)
from lam_vllm.performance_model.device import Constant, Device
from lam_vllm.performance_model.model import Model
from lam_vllm.performance_model.model_config import find_model
from lam_vllm.performance_model.presets import GB10

COMMAND = "lam-vllm calibrate device"
LONGEST_TOKENS = 8_192
EMBEDDING_DIMENSIONS = 768
"""What distances are measured on where no encoder is named: those of bge-base-en-v1.5, the paper's."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured beside this machine: an encoder, a tokenizer's counting, a running vLLM.

    `model` is a config.json or its folder, by default where the server loaded the model from; `longest_tokens` by
    default what its window holds, at most `LONGEST_TOKENS`.
    """

    url: str | None = None
    model: str | None = None
    api_key: str | None = None
    encoder: str | None = None
    tokenizer: str | None = None
    longest_tokens: int | None = None
    rounds: int = 3
    name: str = "this machine"


def run(options: Options, out: Path) -> None:
    """Measures, prints, and writes the device into `out`.

    Raises:
        OptionError: an option has a value that it cannot have, or is of a server and none is named.
        InputFileError: there is no folder for `out`, the model's config cannot be read, or `out` not be written.
        MissingExtraError, EncoderError: torch is not installed, or as `load_encoder`.
        ServerError: the server cannot be reached or refuses a request.
    """
    if options.url is None and options.model is not None:
        raise OptionError(
            "model", options.model, "nothing without --url: it tells the sizes of the model that is served"
        )
    if not out.resolve().parent.is_dir():
        raise InputFileError(out, "cannot be written: there is no such folder")
    engine = measure_engine(options) if options.url else None
    with Console(stderr=True).status("measuring this machine"):
        device = local_device(options)
    if engine:
        device = with_engine(device, *engine)
    try:
        out.write_text(json.dumps(device.json(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputFileError(out, f"cannot be written: {error.strerror or error}") from None
    show(device)
    typer.echo(f"written: {out}; to be used as: lam-vllm model --device {out}")


def local_device(options: Options) -> Device:
    """This machine, with GB10's constants where an encoder or a tokenizer would be needed and none is named.

    Raises:
        MissingExtraError, EncoderError, OptionError: torch is not installed; as `load_encoder`, `load_token_counter`.
    """
    tokenizer, encoder = options.tokenizer, load_encoder(options.encoder) if options.encoder else None
    dimension = encoder.dimension if encoder else EMBEDDING_DIMENSIONS
    device = Device(
        options.name,
        memory_bandwidth=_measured(rates.triad_rate(), "B/s", "triad"),
        matrix_rate=_measured(rates.matrix_rate(), "FLOP/s", "the best of fp32 and bf16 products"),
        prefill_efficiency=_assumed("prefill_efficiency", "no --url was named"),
        memory=_measured(rates.memory_bytes(), "B", "all of it, nothing reserved"),
        encoder_rate=_assumed("encoder_rate", "no --encoder was named"),
        quantize_rate=_measured(
            index_rates.quantize_rate(dimension), "B/s", f"quanta of {dimension} dimensions, one core"
        ),
        hash_rate=_measured(rates.hash_rate(), "B/s", "XXH3 of 128 bits, one core"),
        verify_rate=_measured(rates.verify_rate(dimension), "pair/s", f"{dimension} dimensions, one core"),
        codec_rate=_codec_rate(dimension),
        exact_rate=_assumed("exact_rate", "no --tokenizer was named"),
    )
    if encoder:
        rate, way = rates.encoder_rate(encoder)
        device = replace(device, encoder_rate=_measured(rate, "tok/s", f"{encoder.name}, one thread, {way}"))
    if tokenizer:
        rate = rates.exact_rate(lambda: load_token_counter(tokenizer))
        device = replace(device, exact_rate=_measured(rate, "tok/s", "the package's own files, one core"))
    return device


def measure_engine(options: Options) -> tuple[Model, list[Timing]]:
    """The sizes of the model that is served, and how long its requests take.

    Raises:
        OptionError, InputFileError: as `Client`, `find_model` and `probe`.
        ServerError: the server cannot be reached or refuses a request.
    """
    client = Client(options.url or "", options.api_key)
    served = served_model(client)
    model = find_model(options.model or served.root)
    longest = options.longest_tokens or min(LONGEST_TOKENS, served.most_tokens)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"asking {served.name}", total=REQUESTS * options.rounds)
        return model, probe(client, served, longest, options.rounds, lambda: progress.advance(task))


def with_engine(device: Device, model: Model, timings: Sequence[Timing]) -> Device:
    """The same machine with what `timings` say of this model on it, in place of what it reaches without an engine.

    Raises:
        OptionError: the timings do not determine the coefficients.
    """
    longest = max(each.context_tokens for each in timings)
    source = f"{COMMAND} --url: {model.name}, {len(timings)} prompts of up to {longest:,.0f} tokens"
    served = fit_served(timings, source, model)
    ttft, steps = (_words(errors) for errors in relative_errors(served, timings))
    served = replace(served, source=f"{source}; error of the fit: TTFT {ttft}; decode step {steps}")
    rate, bandwidth = effective_prefill_rate(served, model, timings), effective_bandwidth(served, model, timings)
    here, triad = device.matrix_rate, device.memory_bandwidth
    if rate > here.value:  # the server runs elsewhere: only the product of rate and efficiency counts
        here = Constant(rate, "FLOP/s", f"{source}: prefill, which is faster than products are here", "measured")
    how = f"{source}: what the mean of them takes beyond a fixed {1e3 * served.fixed_seconds:.3g} ms"
    step = f"{source}: their mean decode step (triad here: {triad.value:.4g})"
    return replace(
        device,
        matrix_rate=here,
        prefill_efficiency=Constant(rate / here.value, "1", how, "measured"),
        memory_bandwidth=Constant(bandwidth, "B/s", step, "measured"),
        served=served,
    )


def show(device: Device) -> None:
    """Prints the constants, and the coefficients of the engine where one was measured."""
    table = Table("", "value", "unit", "kind", "source", title=device.name, box=SIMPLE_HEAD, pad_edge=False)
    for name, each in device.constants.items():
        table.add_row(name, f"{each.value:.4g}", each.unit, each.kind, each.source)
    console = Console()
    console.print(table, highlight=False)
    served = device.served
    if served:
        typer.echo(
            f"TTFT: {1e3 * served.fixed_seconds:.4g} ms, {1e6 * served.seconds_per_token:.4g} us for each uncached "
            f"token, {1e9 * served.seconds_per_pair:.4g} ns for each pair of query and key\n"
            f"decode step: {1e3 * served.decode_fixed_seconds:.4g} ms, "
            f"{1e6 * served.decode_seconds_per_context_token:.4g} us for each token of context\n{served.source}"
        )


def _words(errors: Sequence[float]) -> str:
    return f"{median(errors):.1%} at the median, {quantiles(errors, n=10)[-1]:.1%} at p90"


def _codec_rate(dimension: int) -> Constant:
    found = index_rates.codec_rates(dimension)
    how = (
        f"fp32 rows of {dimension} dimensions into streams `dense`, one core ({found.decode_dense:.3g} out of them; "
        f"`fixed`: {found.encode_fixed:.3g} in, {found.decode_fixed:.3g} out)"
    )
    return _measured(found.encode_dense, "B/s", how)


def _measured(value: float, unit: str, how: str) -> Constant:
    return Constant(value, unit, f"{COMMAND}: {how}", "measured")


def _assumed(name: str, why: str) -> Constant:
    return replace(GB10.constants[name], source=f"{GB10.name}'s, as it is: {why}", kind="estimated")
