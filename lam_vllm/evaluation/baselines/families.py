"""Every family of methods by name, with the settings that the evaluation sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lam_vllm.config import Profile
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import MissingExtraError, OptionError
from lam_vllm.evaluation.baselines import llmlingua
from lam_vllm.evaluation.baselines.components import ConnectedComponents
from lam_vllm.evaluation.baselines.l0 import RepeatedLines
from lam_vllm.evaluation.baselines.l1 import NearDuplicates
from lam_vllm.evaluation.baselines.llmlingua import LLMLingua2
from lam_vllm.evaluation.baselines.masking import ObservationMasking
from lam_vllm.evaluation.baselines.minhash import MinHashWindows
from lam_vllm.evaluation.baselines.none import NoCompaction
from lam_vllm.evaluation.baselines.profiles import ProfileMethod
from lam_vllm.evaluation.baselines.semdedup import ClusteredRuns, SemDeDup
from lam_vllm.evaluation.baselines.span_folding import SETTINGS, SpanFolding
from lam_vllm.evaluation.baselines.summarise import Summaries
from lam_vllm.evaluation.baselines.unavailable import BaselineUnavailableError
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measures.ecr import MASKING_KEPT_RESULTS, SEEDS, SEMDEDUP_THRESHOLDS_COS, THRESHOLDS_COS
from lam_vllm.evaluation.method import Method

THRESHOLDS_JACCARD = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
LLMLINGUA_RATES = (0.33, 0.5)
SUMMARY_RATIOS = (0.1, 0.3)


@dataclass(frozen=True)
class Inputs:
    """What methods are made from. Families whose input is None are left out, with a reason.

    `runs` are those that will be measured, which `semdedup_global` clusters. `windows` and `encoder` belong together:
    the first is shared by the baselines, the second serves the profiles and had better remember what it encoded.
    """

    count_tokens: Callable[[str], int]
    runs: Sequence[Run] = ()
    encoder: Encoder | None = None
    windows: WindowEmbeddings | None = None
    llmlingua_xlm_weights: str = llmlingua.XLM_ROBERTA_LARGE
    llmlingua_bert_weights: str = llmlingua.BERT_MULTILINGUAL
    summary_url: str | None = None
    summary_model: str | None = None
    summary_api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Family:
    """Methods of one name, one per setting and seed; where there are none, `reason` says why."""

    name: str
    methods: tuple[Method, ...]
    reason: str = ""


Settings = Sequence[float]


def make_family(name: str, inputs: Inputs, settings: Settings | None = None) -> Family:
    """The methods of the family `name` at its `settings` (None: those of the evaluation).

    A family that cannot run here comes back empty, with the reason.

    Raises:
        OptionError: there is no such family, or a setting is out of range.
    """
    grid = grid_of(name)
    _, make = _FAMILIES[name]
    try:
        return Family(name, tuple(make(inputs, grid if settings is None else settings)))
    except (BaselineUnavailableError, MissingExtraError) as error:
        return Family(name, (), str(error))


def grid_of(name: str) -> Settings:
    """The settings of the evaluation for the family `name`, ascending; empty where there is nothing to choose.

    Raises:
        OptionError: there is no such family.
    """
    if name not in _FAMILIES:
        raise OptionError("method", name, ", ".join(_FAMILIES))
    return _FAMILIES[name][0]


def family_names() -> tuple[str, ...]:
    """The names of all families, in the order in which tables show them."""
    return tuple(_FAMILIES)


def _windows(inputs: Inputs) -> WindowEmbeddings:
    if inputs.windows is None:
        raise BaselineUnavailableError("no encoder was given")
    return inputs.windows


def _profile(name: Profile) -> Callable[[Inputs, Settings], list[Method]]:
    def make(inputs: Inputs, settings: Settings) -> list[Method]:
        if inputs.encoder is None:
            raise BaselineUnavailableError("no encoder was given")
        return [ProfileMethod(name, inputs.count_tokens, inputs.encoder, t) for t in settings]

    return make


def _semdedup(inputs: Inputs, settings: Settings, runs: Sequence[Run] | None) -> list[Method]:
    clusters = ClusteredRuns(_windows(inputs), runs)
    return [SemDeDup(t, clusters, seed) for t in settings for seed in SEEDS]


def _lingua(name: str, weights: str, inputs: Inputs, settings: Settings) -> list[Method]:
    return [LLMLingua2(name, weights, rate, inputs.count_tokens) for rate in settings]


def _summaries(inputs: Inputs, settings: Settings) -> list[Method]:
    if inputs.summary_url is None:
        raise BaselineUnavailableError("no server for summaries was named")
    return [
        Summaries(
            ratio,
            inputs.summary_url,
            inputs.count_tokens,
            model=inputs.summary_model,
            api_key=inputs.summary_api_key,
        )
        for ratio in settings
    ]


_FAMILIES: dict[str, tuple[Settings, Callable[[Inputs, Settings], Sequence[Method]]]] = {
    "none": ((), lambda _, __: [NoCompaction()]),
    "l0": ((), lambda _, __: [RepeatedLines()]),
    "exact": (
        (),
        lambda inputs, _: [
            ProfileMethod("exact", inputs.count_tokens, directory_aliases=aliases) for aliases in (False, True)
        ],
    ),
    "guarded": (THRESHOLDS_COS, _profile("guarded")),
    "paper": (THRESHOLDS_COS, _profile("paper")),
    "l1": (THRESHOLDS_COS, lambda inputs, ts: [NearDuplicates(t, _windows(inputs)) for t in ts]),
    "components": (THRESHOLDS_COS, lambda inputs, ts: [ConnectedComponents(t, _windows(inputs)) for t in ts]),
    "semdedup": (SEMDEDUP_THRESHOLDS_COS, lambda inputs, ts: _semdedup(inputs, ts, None)),
    "semdedup_global": (SEMDEDUP_THRESHOLDS_COS, lambda inputs, ts: _semdedup(inputs, ts, inputs.runs)),
    "minhash": (THRESHOLDS_JACCARD, lambda inputs, js: [MinHashWindows(j, _windows(inputs)) for j in js]),
    "span_folding": ((), lambda inputs, _: [SpanFolding(inputs.count_tokens, how) for how in SETTINGS]),
    "masking": (MASKING_KEPT_RESULTS, lambda _, ks: [ObservationMasking(int(k)) for k in ks]),
    "llmlingua2_xlm": (
        LLMLINGUA_RATES,
        lambda inputs, rates: _lingua("llmlingua2_xlm", inputs.llmlingua_xlm_weights, inputs, rates),
    ),
    "llmlingua2_bert": (
        LLMLINGUA_RATES,
        lambda inputs, rates: _lingua("llmlingua2_bert", inputs.llmlingua_bert_weights, inputs, rates),
    ),
    "summaries": (SUMMARY_RATIOS, _summaries),
}
