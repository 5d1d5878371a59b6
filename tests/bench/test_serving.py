"""What bench/serving.py makes of its turns: when they arrive, who runs where, and the figures of a load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.errors import LamError, OptionError
from lam_vllm.evaluation.corpus import find_run

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))  # the benchmarks import one another by name, as scripts in one folder do

from serving_client import Answer, Call  # noqa: E402
from serving_figures import compactor_figures, covered_seconds, server_figures, warm_figures  # noqa: E402
from serving_load import Sent  # noqa: E402
from serving_placement import memory_nodes, place  # noqa: E402
from serving_turns import Turn, arrivals, recorded_traffic  # noqa: E402

CORPUS = ROOT / "tests/data/corpus/trajectories.jsonl.xz"
RUN = "swesmith_samples/pydantic__pydantic.acb0f10f.pr_8316"
ONE_NODE, TWO_NODES = [(0, 1)], [(0, 1, 2, 3), (4, 5, 6, 7)]


@given(st.floats(0.05, 5), st.floats(0, 60), st.integers(0, 99), st.floats(0, 9))
def test_arrivals_are_the_same_for_one_seed_and_stay_in_their_time(
    rate: float, seconds: float, seed: int, first: float
) -> None:
    times = list(arrivals(rate, seconds, seed, first))
    assert times == list(arrivals(rate, seconds, seed, first)) == sorted(times)
    assert all(first <= at < first + seconds for at in times)


def test_arrivals_have_the_stated_rate() -> None:
    assert len(list(arrivals(4.0, 2_500.0, 1, 0.0))) == pytest.approx(10_000, rel=0.05)  # five standard deviations


def test_far_is_another_memory_node_and_near_the_rest_of_the_first() -> None:
    near, far = place("near", TWO_NODES), place("far", TWO_NODES)
    assert (near.engine, near.compactor) == ((0, 1), (2, 3))
    assert (far.engine, far.compactor) == ((0, 1), (4, 5, 6, 7))
    assert far.environment == {"VLLM_CPU_OMP_THREADS_BIND": "0,1"} and far.flags == ["--lam-cpus=4,5,6,7"]


def test_one_memory_node_makes_near_and_far_the_same_and_says_so() -> None:
    near, far = place("near", ONE_NODE), place("far", ONE_NODE)
    assert (near.engine, near.compactor) == (far.engine, far.compactor) == ((0,), (1,))
    assert "1 memory node" in near.note and "the same" in near.note


def test_unrestricted_restricts_nothing() -> None:
    free = place("unrestricted", memory_nodes())
    assert not free.environment and not free.flags


@pytest.mark.parametrize(("name", "nodes"), [("near", [(0,)]), ("nearby", ONE_NODE)])
def test_a_placement_that_cannot_be_is_refused(name: str, nodes: list[tuple[int, ...]]) -> None:
    with pytest.raises(OptionError, match="placement"):
        place(name, nodes)


def test_turns_go_on_where_their_conversation_stopped(count_tokens: Callable[[str], int]) -> None:
    traffic = recorded_traffic([find_run(CORPUS, RUN)], [1.0, 2.0, 3.0, 4.0, 5.0], 6_000, count_tokens)
    assert [turn.conversation for turn in traffic.turns] == [0, 1, 2, 3, 0]
    before = {turn.conversation: turn for turn in traffic.openings}
    assert sorted(before) == [0, 1, 2, 3]
    for turn in traffic.turns:
        known = before[turn.conversation].messages
        assert turn.messages[: len(known)] == known and len(turn.messages) > len(known)
        before[turn.conversation] = turn
    first, *same, last = traffic.turns  # the run is the only one, so every conversation repeats it under another salt
    assert all((turn.windows, turn.encoder_tokens) == (first.windows, first.encoder_tokens) for turn in same)
    assert first.encoder_tokens > 0 and last.messages != first.messages


def test_no_run_with_enough_turns_is_an_error(count_tokens: Callable[[str], int]) -> None:
    with pytest.raises(OptionError, match="prompt_tokens"):
        recorded_traffic([find_run(CORPUS, RUN)], [1.0], 100, count_tokens)


def test_calls_that_overlap_count_their_time_once() -> None:
    calls = [Call(0.0, 9.0, 2.0), Call(1.0, 9.0, 2.0), Call(1.5, 9.0, 0.5), Call(5.0, 9.0, 1.0)]
    assert covered_seconds(calls) == 4.0  # 0 to 3 and 5 to 6


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1))
def test_covered_time_is_that_of_the_seconds_that_any_call_covers(spans: list[tuple[int, int]]) -> None:
    covered = {second for began, length in spans for second in range(began, began + length)}
    assert covered_seconds(Call(began, 0.0, length) for began, length in spans) == len(covered)


def sent(at: float, ttft: float, *, tokens: int = 100, hook: float = 0.5, warmed: Call | None = None) -> Sent:
    """A turn of three output tokens, half a second apart."""
    texts = [at + ttft, at + ttft + 0.5, at + ttft + 1.0]
    answer = Answer(at, texts[-1], texts, 3, 1000, 800, hook)
    return Sent(Turn(at, 0, [], 1 if tokens else 0, tokens), answer, 0.0, warmed)


def test_server_figures_of_two_answers_and_a_failure() -> None:
    failed = Sent(Turn(4.0, 0, [], 0, 0), Answer(4.2, 5.0, error="500"), 0.2, None)
    figures = server_figures([sent(0.0, 1.0), sent(2.0, 3.0), failed])
    assert (figures["turns"], figures["failed"], figures["late"]) == (3, 1, 1)
    assert figures["out_tok_s"] == 1.0  # six tokens from 0 to 6
    assert (figures["ttft_p50_ms"], figures["ttft_p90_ms"]) == (2000.0, 2800.0)
    assert figures["tpot_p50_ms"] == figures["itl_p50_ms"] == 500.0
    assert figures["drain_seconds"] == 1.8
    assert (figures["prompt_tokens"], figures["cached_tokens"]) == (2000, 1600)


def test_compactor_figures_count_the_turns_that_had_something_to_encode() -> None:
    alone = [Call(0.0, 0.0, 0.2), Call(1.0, 0.0, 0.2), Call(2.0, 0.0, 7.0)]
    figures = compactor_figures([sent(0.0, 1.0), sent(2.0, 3.0), sent(5.0, 1.0, tokens=0, hook=0.0)], alone)
    assert figures["encoder_tokens"] == 200 and figures["windows_needed"] == 2
    assert (figures["compactor_tok_s"], figures["compactor_solo_tok_s"], figures["vs_solo"]) == (200, 500, 0.4)
    assert figures["hook_share_of_ttft"] == 0.2  # half a second twice, of five


def test_a_load_without_anything_to_encode_has_no_speed() -> None:
    figures = compactor_figures([sent(0.0, 1.0, tokens=0, hook=0.01)], [Call(0.0, 0.0, 0.01)])
    assert figures["compactor_tok_s"] is None and figures["vs_solo"] is None and figures["hook_p50_ms"] == 10.0


def test_a_load_that_nobody_answered_is_an_error() -> None:
    with pytest.raises(LamError, match="refused"):
        server_figures([Sent(Turn(0.0, 0, [], 0, 0), Answer(0.0, 0.1, error="refused"), 0.0, None)])


def test_the_time_of_warmed_turns_is_that_of_their_warm_calls() -> None:
    warmed = [sent(4.0, 1.0, hook=0.01, warmed=Call(2.0, 2.5, 0.25)), sent(9.0, 1.0, warmed=Call(7.0, 9.5, 0.25))]
    figures = compactor_figures(warmed, [Call(0.0, 0.0, 0.1), Call(1.0, 0.0, 0.1)])
    assert (figures["compactor_tok_s"], figures["vs_solo"]) == (400, 0.4)
    assert warm_figures(warmed) == {"warmed": 2, "warmed_in_time": 1, "warm_p50_ms": 250.0}
