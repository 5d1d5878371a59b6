"""Windows, their embeddings, and the methods that compare them, on vectors in a plane and short runs."""

from __future__ import annotations

import numpy as np
import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines.components import ConnectedComponents, components
from lam_vllm.evaluation.baselines.l1 import NearDuplicates, greedy_matches
from lam_vllm.evaluation.baselines.minhash import MinHashWindows, jaccard, shingles
from lam_vllm.evaluation.baselines.semdedup import NONE_BEFORE, ClusteredRuns, SemDeDup, drops, nearest_before
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Embedding
from tests.core.chats import BagOfWords
from tests.evaluation.baselines.hand_made import at_angles, cos_of, results_of, run_of

FORTY = " ".join(f"word{number}" for number in range(40))
OTHER = " ".join(f"else{number}" for number in range(40))
EDITED = FORTY.replace("word7", "changed")


class Ticking(BagOfWords):
    """Takes exactly one second of `now` for each text that it encodes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def encode(self, text: str) -> Embedding:
        self.now += 1.0
        return super().encode(text)


def test_windows_tile_every_observation_and_are_numbered_within_their_result() -> None:
    windows = WindowEmbeddings(BagOfWords())  # 40 tokens a window
    parts = [{"type": "text", "text": FORTY + " tail"}, {"type": "text", "text": "next part"}]
    run = Run("parts", "hand", ({"role": "tool", "content": parts}, {"role": "tool", "content": "second"}))
    windowed = windows.windowed(run)
    assert windowed.texts() == [FORTY + " ", "tail", "next part", "second"]
    assert [(each.observation, each.result, each.ordinal) for each in windowed.windows] == [
        (0, 1, 1),
        (0, 1, 2),
        (1, 1, 3),
        (2, 2, 1),
    ]


def test_a_text_is_encoded_once_and_a_run_once_for_all_who_ask() -> None:
    encoder = Ticking()
    windows = WindowEmbeddings(encoder, lambda: encoder.now)
    run = run_of(FORTY, OTHER, FORTY)
    rows = windows.rows(run)
    assert rows.shape == (3, 64)
    assert rows.dtype == np.float32
    assert encoder.calls == 2
    assert np.array_equal(rows[0], rows[2])
    assert windows.rows(run_of(FORTY, OTHER, FORTY)) is rows
    assert encoder.calls == 2


def test_time_that_was_spared_is_charged_again_to_each_who_asks() -> None:
    encoder = Ticking()
    windows = WindowEmbeddings(encoder, lambda: encoder.now)
    run = run_of(FORTY, OTHER)
    spent = []
    for _ in range(3):
        began = windows.cpu_seconds()
        windows.rows(run)
        spent.append(windows.cpu_seconds() - began)
    assert spent == [2.0, 2.0, 2.0]
    assert encoder.now == 2.0


def test_cutting_is_charged_once_whatever_is_asked_for_first() -> None:
    class SlowToCut(Ticking):
        def token_offsets(self, text: str) -> list[tuple[int, int]]:
            self.now += 10.0
            return super().token_offsets(text)

    for ask_for_windows_first in (True, False):
        encoder = SlowToCut()
        windows = WindowEmbeddings(encoder, lambda encoder=encoder: encoder.now)  # type: ignore[misc]
        run = run_of(FORTY, OTHER)
        asked = [windows.windowed, windows.rows]
        for ask in asked if ask_for_windows_first else reversed(asked):
            ask(run)
        assert windows.cpu_seconds() == 22.0


def test_two_runs_of_one_id_are_told_apart() -> None:
    windows = WindowEmbeddings(BagOfWords())
    assert windows.windowed(run_of("a b")).texts() == ["a b"]
    assert windows.windowed(run_of("c d", "e")).texts() == ["c d", "e"]


def test_a_run_without_tool_output_has_no_windows() -> None:
    windows = WindowEmbeddings(BagOfWords())
    run = run_of()
    assert windows.rows(run).shape == (0, 64)
    for method in (
        NearDuplicates(0.9, windows),
        ConnectedComponents(0.9, windows),
        SemDeDup(0.9, ClusteredRuns(windows), 0),
        MinHashWindows(0.5, windows),
    ):
        assert method.shorten(run) == list(run.messages)


def test_a_window_near_a_retained_one_becomes_a_stub_between_its_neighbours() -> None:
    windows = WindowEmbeddings(BagOfWords())
    run = run_of(FORTY + "\n", OTHER + "\n" + EDITED + "\nend")
    assert results_of(NearDuplicates(0.95, windows).shorten(run)) == [
        FORTY + "\n",
        OTHER + "\n[like window 1 of result 1]\nend",
    ]
    assert NearDuplicates(0.9999, windows).shorten(run) == list(run.messages)


def test_greedy_names_the_lowest_retained_window_and_never_a_dropped_one() -> None:
    rows = at_angles(0, 5, 10, 0)
    found = greedy_matches(["a", "b", "c", "a"], rows, cos_of(6))
    assert {place: match.representative for place, match in found.items()} == {1: 0, 3: 0}
    assert found[1].distance == pytest.approx(2 * np.sin(np.radians(2.5)), abs=1e-6)
    assert found[3].distance == 0.0


def test_components_chain_and_say_how_often_that_breaks_the_bound() -> None:
    found = components(at_angles(0, 5, 10, 90), cos_of(6))
    assert found.representative.tolist() == [0, 0, 0, 3]
    assert found.distance[2] == pytest.approx(2 * np.sin(np.radians(5)), abs=1e-6)
    assert found.violations == 1  # 10 degrees from what stands for it, 6 are allowed
    assert found.dropped == 2


def test_components_join_when_a_later_window_lies_between() -> None:
    found = components(at_angles(0, 10, 5), cos_of(6))
    assert found.representative.tolist() == [0, 0, 0]
    assert components(at_angles(0, 10, 20), cos_of(6)).representative.tolist() == [0, 1, 2]


def test_connected_components_become_stubs_and_report_their_groups() -> None:
    windows = WindowEmbeddings(BagOfWords())
    run = run_of(FORTY, EDITED, OTHER)
    method = ConnectedComponents(0.95, windows)
    assert results_of(method.shorten(run)) == [FORTY, "[like window 1 of result 1]", OTHER]
    assert (method.groups(run).representative.tolist(), method.groups(run).violations) == ([0, 0, 2], 0)


def test_semdedup_keeps_what_lies_farthest_from_the_centroid() -> None:
    rows = at_angles(0, 1, 10)  # centroid near 3.7 degrees: the order is 10, 0, 1
    assert drops(rows, cos_of(2), 1, 0) == [1]
    assert drops(rows, cos_of(9.5), 1, 0) == [1]
    assert drops(rows, cos_of(10.5), 1, 0) == [0, 1]


def test_semdedup_drops_along_chains() -> None:
    rows = at_angles(0, 6, 11, 40)  # centroid near 14 degrees: the order is 40, 0, 6, 11
    assert drops(rows, cos_of(6.5), 1, 0) == [1, 2]


def test_semdedup_compares_within_a_cluster_only_and_of_equal_windows_the_first_stays() -> None:
    rows = at_angles(0, 0, 90, 0, 90)
    assert drops(rows, 0.9999, 2, 3) == [1, 3, 4]
    nearest = nearest_before(at_angles(0, 90), 2, 3)
    assert nearest.place.tolist() == [NONE_BEFORE, NONE_BEFORE]
    assert not np.isfinite(nearest.cosine).any()


def test_semdedup_needs_no_more_clusters_than_there_are_different_windows() -> None:
    assert drops(at_angles(0, 0, 0), 0.99, 3, 0) == [1, 2]
    assert drops(at_angles(), 0.99, 3, 0) == []


def test_the_seed_decides_what_semdedup_drops() -> None:
    spread = np.random.default_rng(7).normal(size=(60, 8))
    rows = (spread / np.linalg.norm(spread, axis=1, keepdims=True)).astype(np.float32)
    sets = {tuple(drops(rows, 0.6, 8, seed)) for seed in range(5)}
    assert len(sets) > 1
    assert drops(rows, 0.6, 8, 2) == drops(rows, 0.6, 8, 2)


def test_semdedup_over_all_runs_drops_what_another_run_shows() -> None:
    first, second = run_of(FORTY, run_id="1"), run_of(FORTY, OTHER, run_id="2")
    windows = WindowEmbeddings(BagOfWords())
    within, everywhere = ClusteredRuns(windows), ClusteredRuns(windows, [first, second])
    assert SemDeDup(0.95, within, 0).shorten(second) == list(second.messages)
    method = SemDeDup(0.95, everywhere, 0)
    assert (within.name, method.name, method.setting, method.seed) == ("semdedup", "semdedup_global", "t=0.95", 0)
    assert results_of(method.shorten(first)) == [FORTY]
    assert results_of(method.shorten(second)) == ["[like window 1 of result 1]", OTHER]


def test_shared_clusters_are_charged_to_each_run_that_asks() -> None:
    encoder = Ticking()
    windows = WindowEmbeddings(encoder, lambda: encoder.now)
    runs = [run_of(FORTY, run_id="1"), run_of(OTHER, EDITED, run_id="2")]
    clusters = ClusteredRuns(windows, runs)
    spent = []
    for run in [*runs, *runs]:
        began = windows.cpu_seconds()
        clusters.neighbours(run, 0)
        spent.append(windows.cpu_seconds() - began)
    assert spent == [1.0, 2.0, 1.0, 2.0]  # encoding alone takes time here


def test_shingles_and_their_jaccard_index() -> None:
    one, other = shingles("a b c d e f"), shingles("a b c d e g")
    assert one == {"a b c d e", "b c d e f"}
    assert jaccard(one, other) == pytest.approx(1 / 3)
    assert shingles("x = 1") == {"x = 1"}
    assert shingles(" \n") == {""}


def test_minhash_drops_windows_that_share_enough_words() -> None:
    windows = WindowEmbeddings(BagOfWords())
    run = run_of(FORTY, OTHER, EDITED, FORTY)  # one word of forty is in 5 of 36 shingles: 31 / 41 = 0.756
    assert results_of(MinHashWindows(0.75, windows).shorten(run)) == [
        FORTY,
        OTHER,
        "[like window 1 of result 1]",
        "[like window 1 of result 1]",
    ]
    assert results_of(MinHashWindows(0.76, windows).shorten(run)) == [
        FORTY,
        OTHER,
        EDITED,
        "[like window 1 of result 1]",
    ]


def test_minhash_names_the_earliest_of_several_near_windows() -> None:
    both = FORTY.replace("word2 ", "changed ").replace("word37", "changed")  # 30 of 42 shingles are the first's
    one = FORTY.replace("word2 ", "changed ")  # 33 of 39 are the first's, and 33 of 39 the second's
    method = MinHashWindows(0.8, WindowEmbeddings(BagOfWords()))
    assert results_of(method.shorten(run_of(FORTY, both, one))) == [FORTY, both, "[like window 1 of result 1]"]


def test_clusters_tell_runs_of_one_id_apart() -> None:
    runs = [run_of(FORTY), run_of(OTHER, OTHER)]
    windows = WindowEmbeddings(BagOfWords())
    for clusters in (ClusteredRuns(windows), ClusteredRuns(windows, runs)):
        assert [len(clusters.neighbours(run, 0)) for run in runs] == [1, 2]


@pytest.mark.parametrize("threshold", [0.0, 1.0, 1.5])
def test_minhash_refuses_a_threshold_that_is_no_share(threshold: float) -> None:
    with pytest.raises(OptionError, match="minhash j"):
        MinHashWindows(threshold, WindowEmbeddings(BagOfWords()))
