"""`lam-vllm model`: what compaction is worth on a device, for a model and a workload or the user's traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import typer
from rich.console import Console
from rich.progress import track

from lam_vllm.commands.evaluate import read
from lam_vllm.commands.model_output import Outputs, show, write_figures
from lam_vllm.commands.model_report import Profile, make_report
from lam_vllm.commands.model_words import basis
from lam_vllm.commands.tokenizer import load_token_counter
from lam_vllm.config import Profile as ProfileName
from lam_vllm.encoders.load import load_encoder
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines.profiles import ProfileMethod
from lam_vllm.evaluation.turns import turns_of
from lam_vllm.performance_model.accounting import ACCOUNTINGS, PAPER
from lam_vllm.performance_model.amount import amount
from lam_vllm.performance_model.capacity import most_context_tokens
from lam_vllm.performance_model.compaction import Compaction, near_duplicates, near_duplicates_then_lines, shared_lines
from lam_vllm.performance_model.device import Constant
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.model_config import find_model
from lam_vllm.performance_model.paper import DECODED_TOKENS, LAM_REMOVAL, TURN_TOKENS, TURNS
from lam_vllm.performance_model.presets import find_device
from lam_vllm.performance_model.workload import removing, steady_run

COMPACTIONS: dict[ProfileName, Compaction] = {
    "exact": shared_lines,
    "guarded": near_duplicates_then_lines,
    "paper": near_duplicates_then_lines,
}
EXACT_REMOVAL = Constant(
    0.207, "1", "python bench/baselines.py: profile exact over 97 recorded runs of mini-swe-agent", "measured"
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was asked for. None: what the accounting takes.

    A workload (`turns` to `removal`) is for where there are no traces; `tokenizer` to `observations` are for traces.
    """

    device: str = "GB10"
    model: str = "Llama-3.1-8B"
    batch: int = 1
    accounting: str = "exact"
    turns: int | None = None
    turn_tokens: float | None = None
    decoded_tokens: float | None = None
    start_tokens: float | None = None
    removal: float | None = None
    budget_tokens: float = 32_000
    profiles: Sequence[str] = ()
    tokenizer: str | None = None
    encoder: str | None = None
    observations: str | None = None


WORKLOAD = ("turns", "turn_tokens", "decoded_tokens", "start_tokens", "removal")
TRACES = ("tokenizer", "encoder", "observations")


def run(names: Sequence[str], options: Options, outputs: Outputs) -> None:
    """Models the runs of these files, or the workload where none is named; prints and draws.

    Raises:
        OptionError: an option has a value that it cannot have or would not be used, or nothing fits.
        InputFileError: not one run can be read, or a file cannot be read or written.
        MissingExtraError, EncoderError: a profile needs an encoder that is not there.
    """
    _refuse_unused(options, traces=bool(names))
    engine = make_engine(options)
    profiles = measured(names, options) if names else [assumed(engine, options)]
    report = make_report(engine, profiles, options.budget_tokens)
    rests_on = basis(engine)
    if rests_on.applies:
        typer.echo(f"lam-vllm: {rests_on.text}", err=True)
    show(report, as_json=outputs.json)
    if outputs.figures:
        for path in write_figures(report, outputs.out):
            typer.echo(f"drawn: {path}", err=True)


def make_engine(options: Options) -> Engine:
    """The model on the device.

    Raises:
        OptionError: there is no such device, model or accounting, or the batch is below 1.
        InputFileError: a file describes no device or no model.
    """
    if options.accounting not in ACCOUNTINGS:
        raise OptionError("accounting", options.accounting, ", ".join(ACCOUNTINGS))
    accounting = ACCOUNTINGS[options.accounting]
    return Engine(find_device(options.device), find_model(options.model), options.batch, accounting)


def assumed(engine: Engine, options: Options) -> Profile:
    """Equal turns, and what one profile removes of each: the paper's turns where nothing else was asked for.

    Raises:
        OptionError: several profiles were asked for, or one of which no removal is known; the turns cannot be.
    """
    name, compaction, removal = _assumed_removal(engine, options)
    turn_tokens = TURN_TOKENS.value if options.turn_tokens is None else options.turn_tokens
    decoded_tokens = DECODED_TOKENS.value if options.decoded_tokens is None else options.decoded_tokens
    start_tokens = amount("start_tokens", options.start_tokens or 0.0)
    (first,) = removing(steady_run(1, turn_tokens, decoded_tokens, start_tokens=start_tokens), removal)
    turns = options.turns
    if turns is None:
        turns = _turns_until_full(engine, first.growth_tokens - start_tokens, start_tokens)
    plain = steady_run(turns, turn_tokens, decoded_tokens, start_tokens=start_tokens)
    return Profile(name, [removing(plain, removal)], compaction, goes_on=options.turns is None)


def measured(names: Sequence[str], options: Options) -> list[Profile]:
    """The recorded runs, and what each profile removes of each turn.

    Raises:
        OptionError: no tokenizer is named; there is no such profile, or it needs an encoder and none is named; there
            are no such observations.
        InputFileError: not one run can be read.
        MissingExtraError, EncoderError: as `load_encoder`.
    """
    if options.tokenizer is None:
        raise OptionError("tokenizer", None, "the served model's tokenizer, as file, folder or hub name")
    wanted = options.profiles or ("exact",)
    for name in wanted:
        _compaction(name)
    if options.encoder is None and set(wanted) != {"exact"}:
        raise OptionError("encoder", None, "one for profiles guarded and paper, such as minilm; exact needs none")
    observations = options.observations or "tool"
    count_tokens = load_token_counter(options.tokenizer)
    encoder = load_encoder(options.encoder) if options.encoder else None
    recorded = read(names).runs
    profiles = []
    for name in (profile for profile in COMPACTIONS if profile in wanted):
        needed = None if name == "exact" else encoder
        method = ProfileMethod(name, count_tokens, needed, observations=observations)
        bar = track(recorded, f"measuring {name}", console=Console(stderr=True), transient=True)
        runs = [turns for each in bar if (turns := turns_of(each, method, count_tokens, observations))]
        profiles.append(Profile(name, runs, COMPACTIONS[name]))
    if not profiles[0].runs:
        raise OptionError("files", list(names), "runs in which a model answers at least once")
    return profiles


def _refuse_unused(options: Options, *, traces: bool) -> None:
    """Refuses what would be ignored."""
    allowed = "nothing with FILES, whose turns are measured" if traces else "nothing without FILES, which it is for"
    for name in WORKLOAD if traces else TRACES:
        value = getattr(options, name)
        if value is not None:
            raise OptionError(name, value, allowed)


def _assumed_removal(engine: Engine, options: Options) -> tuple[str, Compaction, float]:
    """What removes, what deciding that costs, and the share of tool output that goes."""
    if len(options.profiles) > 1:
        allowed = "one; several are measured on recorded runs, so name FILES"
        raise OptionError("profile", list(options.profiles), allowed)
    if engine.accounting is PAPER and not options.profiles and options.removal is None:
        observed = TURN_TOKENS.value - DECODED_TOKENS.value
        return "LAM", near_duplicates, LAM_REMOVAL.value * TURN_TOKENS.value / observed
    (name,) = options.profiles or ("exact",)
    removal = EXACT_REMOVAL.value if name == "exact" and options.removal is None else options.removal
    if removal is None:
        raise OptionError("removal", None, f"a share of tool output; what {name} removes is not known without FILES")
    return name, _compaction(name), removal


def _compaction(profile: str) -> Compaction:
    found = {str(name): compaction for name, compaction in COMPACTIONS.items()}
    if profile not in found:
        raise OptionError("profile", profile, ", ".join(found))
    return found[profile]


def _turns_until_full(engine: Engine, growth_tokens: float, start_tokens: float) -> int:
    """Turns until the compacted context is full; the paper's number under its accounting."""
    if engine.accounting is PAPER or growth_tokens <= 0:
        return int(TURNS.value)
    return max(1, ceil((most_context_tokens(engine) - start_tokens) / growth_tokens))
