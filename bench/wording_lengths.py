"""What each wording costs over the whole corpus: the tokens of its stubs, and what short names of directories save."""

from __future__ import annotations

from collections.abc import Sequence

from corpus_data import observed
from wording_aliases import ALIAS_WORDINGS, SOURCES, realiased
from wording_questions import TokenCounter
from wordings import WORDINGS, references_of

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.evaluation.corpus import Run


def stub_tokens(runs: Sequence[Run], count_tokens: TokenCounter) -> dict[str, float]:
    """The mean length of a stub by wording, over all that the profile `exact` leaves in these runs."""
    compactor = Compactor(CompactorConfig(profile="exact"), count_tokens)
    totals = dict.fromkeys(WORDINGS, 0)
    stubs = 0
    for run in runs:
        for placed in references_of(run.messages, compactor.compact(run.messages, use_memo=False)):
            stubs += 1
            for name, wording in WORDINGS.items():
                totals[name] += count_tokens(wording(placed.reference))
    return {name: round(total / stubs, 2) for name, total in totals.items()}


def alias_removal(runs: Sequence[Run], count_tokens: TokenCounter) -> dict[str, float]:
    """Percent of the tool output of `SOURCES` that short names remove besides references, by wording.

    Where a short name pays is decided with the plugin's; another wording only prints the same choice.
    """
    runs = [run for run in runs if run.source in SOURCES]
    plain = Compactor(CompactorConfig(profile="exact"), count_tokens)
    aliasing = Compactor(CompactorConfig(profile="exact", directory_aliases=True), count_tokens)
    original = without = 0
    totals = dict.fromkeys(ALIAS_WORDINGS, 0)
    for run in runs:
        original += sum(map(count_tokens, observed(run.messages)))
        without += sum(map(count_tokens, observed(plain.compact(run.messages, use_memo=False).messages)))
        messages = aliasing.compact(run.messages, use_memo=False).messages
        for name, wording in ALIAS_WORDINGS.items():
            totals[name] += sum(map(count_tokens, observed(realiased(messages, wording))))
    return {name: round(100 * (without - total) / original, 2) for name, total in totals.items()}
