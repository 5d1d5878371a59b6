"""What a set of runs is like apart from any method's settings: its turns, its repeats, and its windows by t."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measures.duplicates import Duplicates, duplicates
from lam_vllm.evaluation.measures.layers import LayerOrders, layer_orders
from lam_vllm.evaluation.measures.relations import RelationFigures, relations
from lam_vllm.evaluation.measures.space import (
    RankMargins,
    RetrievalFigures,
    WindowFigures,
    rank_margins,
    retrieval_figures,
    space,
    window_figures,
)
from lam_vllm.evaluation.score import observation_texts
from lam_vllm.messages import printed_texts
from lam_vllm.performance_model.ledger import Workload

T = 0.95


@dataclass(frozen=True, slots=True)
class CorpusFigures:
    """Figures of the windows that an encoder sees in some runs, each by t where it has one, ascending."""

    duplicates: Mapping[str, Duplicates]
    windows: Mapping[float, WindowFigures]
    retrieval: Mapping[float, RetrievalFigures]
    layers: Mapping[float, LayerOrders]
    relations: Sequence[RelationFigures]
    margins: Sequence[RankMargins]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of the served model in some runs: of all messages, of tool output, and of what one turn adds on average.

    A turn is what the model wrote and what the tools printed until it writes again.
    """

    context_tokens: int
    observation_tokens: int
    turn_tokens: float

    @property
    def workload(self) -> Workload | None:
        """The runs as the ledger takes them; None where they have no turn or no tool output."""
        if not (self.turn_tokens and self.observation_tokens):
            return None
        return Workload(self.turn_tokens, self.observation_tokens)


def corpus_figures(
    runs: Iterable[Run], encoder: Encoder, windows: WindowEmbeddings, thresholds_cos: Sequence[float]
) -> CorpusFigures:
    """The figures of these runs, of which those without tool output say nothing.

    Raises:
        ValueError: no run has tool output.
    """
    shown = [(run, found) for run in runs if (found := observation_texts(run.messages))]
    texts = [found for _, found in shown]
    spaces = [space(windows.rows(run)) for run, _ in shown]
    return CorpusFigures(
        {str(name): found for name, found in duplicates(texts, encoder.token_offsets).items()},
        {threshold: window_figures(spaces, threshold) for threshold in thresholds_cos},
        {threshold: retrieval_figures(spaces, threshold) for threshold in thresholds_cos},
        layers_together(texts, encoder, thresholds_cos),
        relations(spaces, T) if any(len(each.held.queries) for each in spaces) else (),
        rank_margins(spaces),
    )


def layers_together(
    runs: Iterable[Sequence[str]], encoder: Encoder, thresholds_cos: Sequence[float]
) -> dict[float, LayerOrders]:
    """What the layers remove of several runs, by t; a run is the texts of its tool results."""
    by_t: dict[float, LayerOrders] = {}
    for texts in runs:
        for threshold, orders in layer_orders(texts, encoder, thresholds_cos).items():
            by_t[threshold] = by_t[threshold] + orders if threshold in by_t else orders
    return by_t


def sizes(runs: Iterable[Run], count_tokens: Callable[[str], int]) -> Sizes:
    """How large the runs are together."""
    context = observed = grown = turns = 0
    for run in runs:
        observed += sum(map(count_tokens, observation_texts(run.messages)))
        turns_before = turns
        for message in run.messages:
            tokens = sum(map(count_tokens, printed_texts(message)))
            context += tokens
            turns += message.get("role") == "assistant"
            grown += tokens if turns > turns_before else 0
    return Sizes(context, observed, grown / max(1, turns))
