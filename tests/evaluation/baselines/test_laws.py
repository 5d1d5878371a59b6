"""What every method must hold to, over random chats and over recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.evaluation.baselines import Inputs, WindowEmbeddings, family_names, make_family
from lam_vllm.evaluation.baselines.l0 import RepeatedLines
from lam_vllm.evaluation.baselines.l1 import NearDuplicates
from lam_vllm.evaluation.baselines.profiles import ProfileMethod
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import distinct_lines, gold_lines
from lam_vllm.evaluation.method import Method
from tests.core.chats import BagOfWords, chats, shape
from tests.evaluation.baselines.hand_made import count_words

LOCAL = tuple(name for name in family_names() if not name.startswith(("llmlingua2", "summaries")))
LOSSLESS = ("none", "l0", "exact", "span_folding")


def methods(name: str, runs: list[Run], count_tokens: Callable[[str], int] = count_words) -> tuple[Method, ...]:
    """Two settings of a family, over an encoder that takes no time."""
    encoder = BagOfWords()
    family = make_family(name, Inputs(count_tokens, runs, encoder, WindowEmbeddings(encoder)))
    assert not family.reason
    return family.methods[:: max(1, len(family.methods) - 1)]


def is_tool_text(message: dict[str, Any]) -> bool:
    return bool(message["role"] == "tool")


@pytest.mark.parametrize("name", LOCAL)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chat=chats(opaque=False))
def test_only_text_of_tool_results_changes_and_none_becomes_empty(name: str, chat: list[dict[str, Any]]) -> None:
    run = Run("random", "chat", tuple(deepcopy(chat)))
    for method in methods(name, [run]):
        messages = method.shorten(run)
        assert shape(messages, is_tool_text) == shape(chat, is_tool_text)
        assert list(run.messages) == chat
        for before, after in zip(chat, messages, strict=True):
            if is_tool_text(before) and isinstance(before["content"], str) and before["content"]:
                assert after["content"]


@pytest.mark.parametrize("name", LOCAL)
def test_a_method_made_anew_gives_the_same_messages(name: str, six_runs: list[Run]) -> None:
    runs = sorted(six_runs, key=lambda run: len(str(run.messages)))[:3]
    once, again = methods(name, runs), methods(name, runs)
    assert [one.setting for one in once] == [one.setting for one in again]
    for one, other in zip(once, again, strict=True):
        assert [one.shorten(run) for run in runs] == [other.shorten(run) for run in reversed(runs)][::-1]


@pytest.mark.parametrize("name", LOSSLESS)
def test_evidence_stays_whole_where_only_repeats_go(
    name: str, six_runs: list[Run], count_tokens: Callable[[str], int]
) -> None:
    for method, run in product([each for each in methods(name, six_runs, count_tokens) if each.verbatim], six_runs):
        messages = method.shorten(run)
        gold = gold_lines(run.messages, messages, run.gold_patch or "")
        lines = distinct_lines(run.messages, messages)
        assert (gold.kept, lines.readable) == (gold.witnessed, lines.distinct)


def test_the_runs_hold_evidence_and_masking_loses_some_of_it(six_runs: list[Run]) -> None:
    method = methods("masking", six_runs)[0]
    found = [gold_lines(run.messages, method.shorten(run), run.gold_patch or "") for run in six_runs]
    assert sum(gold.kept for gold in found) < sum(gold.witnessed for gold in found)


def test_l0_is_the_second_layer_of_the_product(six_runs: list[Run]) -> None:
    ours = Compactor(CompactorConfig(profile="paper", max_windows=0), count_words, BagOfWords())
    for run in six_runs:
        assert RepeatedLines().shorten(run) == ours.compact(run.messages).messages


def test_l0_after_l1_is_the_profile_of_the_paper(six_runs: list[Run]) -> None:
    encoder = BagOfWords()
    l1, l0 = NearDuplicates(0.8, WindowEmbeddings(encoder)), RepeatedLines()
    paper = ProfileMethod("paper", count_words, encoder, 0.8)
    for run in six_runs:
        layered = l0.shorten(replace(run, messages=tuple(l1.shorten(run))))
        assert layered == paper.shorten(run)


def test_l0_after_l1_loses_what_l1_loses_alone(six_runs: list[Run]) -> None:
    l1, l0 = NearDuplicates(0.8, WindowEmbeddings(BagOfWords())), RepeatedLines()
    lost = 0
    for run in six_runs:
        alone = l1.shorten(run)
        layered = l0.shorten(replace(run, messages=tuple(alone)))
        patch = run.gold_patch or ""
        assert gold_lines(run.messages, layered, patch).lost == gold_lines(run.messages, alone, patch).lost
        before = distinct_lines(run.messages, alone).lost
        assert distinct_lines(run.messages, layered).lost == before
        lost += len(before)
    assert lost
