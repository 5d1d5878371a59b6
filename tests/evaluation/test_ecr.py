"""ECR, binding points and what a floor lets through, on a family of three settings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.measures.ecr import FAMILIES, FLOORS, Family, ecr, floor_costs, points
from lam_vllm.evaluation.measures.gold import Unmeasurable
from lam_vllm.evaluation.rows import Row

from .made_rows import row


def measured(setting: str, removed: int, kept: tuple[int, int], seed: int = 0, method: str = "masking") -> list[Row]:
    """Two runs of 100 tokens and 50 gold lines each, the first resolved: `removed` tokens of both go together."""
    rest = {"method": method, "setting": setting, "seed": seed, "gold_witnessed": 50}
    return [
        row("a", emitted_tokens=100 - removed, gold_kept=kept[0], **rest),
        row("b", emitted_tokens=100, gold_kept=kept[1], resolved=False, **rest),
    ]


THREE = [*measured("k=50", 10, (50, 50)), *measured("k=10", 40, (50, 49)), *measured("k=3", 80, (46, 50))]


def test_the_binding_point_is_the_admissible_setting_that_removes_most() -> None:
    family = points(THREE)
    found = [ecr(family, floor) for floor in (1.0, 0.99, 0.97, 0.96)]
    assert [getattr(point, "setting", None) for point in found] == ["k=50", "k=10", "k=10", "k=3"]
    assert [getattr(point, "removal", None) for point in found] == pytest.approx([0.05, 0.2, 0.2, 0.4])


def test_a_floor_that_no_setting_keeps_has_no_binding_point() -> None:
    assert ecr(points(measured("k=3", 80, (46, 50))), 0.99) is None


def test_a_seeded_setting_needs_every_seed_and_removes_the_mean() -> None:
    seeds = [*measured("t=0.9", 20, (50, 50), seed=0), *measured("t=0.9", 40, (50, 49), seed=1)]
    (point,) = points(seeds)
    assert (point.seeds, point.kept, point.losing_runs) == (2, 0.99, 0.5)
    assert point.removal == pytest.approx(0.15)
    assert ecr([point], 1.0) is None
    assert ecr([point], 0.99) == point


def test_a_floor_costs_what_its_worst_admissible_setting_loses() -> None:
    costs = floor_costs(points(THREE), (1.0, 0.99, 0.95))
    assert [cost.admissible for cost in costs] == [1, 2, 3]
    assert [cost.losing_runs for cost in costs] == [0.0, 0.5, 0.5]
    assert [cost.rsc_drop for cost in costs] == [0.0, 0.0, 0.5]  # only run a was resolved, and only k=3 loses of it


def test_what_cannot_be_judged_is_never_admissible_and_says_why() -> None:
    summaries = points([row(method="summary", setting="", gold_kept=None, gold_relaxed=None, emitted_tokens=1)])
    assert str(ecr(summaries, 0.0)) == "not measurable: writes new text"
    (cost,) = floor_costs(summaries, (0.95,))
    assert (cost.admissible, str(cost.losing_runs)) == (0, "not measurable: no setting is admissible")


def test_without_outcomes_only_the_rsc_drop_is_unknown() -> None:
    (cost,) = floor_costs(points([row(resolved=None, gold_kept=3)]), (0.5,))
    assert (cost.admissible, cost.losing_runs) == (1, 1.0)
    assert isinstance(cost.rsc_drop, Unmeasurable)


@pytest.mark.parametrize(
    "more",
    [measured("k=1", 90, (0, 0))[:1], [*measured("k=1", 90, (0, 0)), row("b", setting="k=1")]],
    ids=["a run is missing", "a run is there twice"],
)
def test_settings_must_be_measured_on_the_same_runs(more: list[Row]) -> None:
    with pytest.raises(OptionError, match="rows: 'masking k=1, seed 0: . rows of"):
        points([*THREE, *more])


def test_a_run_that_is_there_twice_is_not_counted_twice() -> None:
    with pytest.raises(OptionError, match="rows: 'masking k=3, seed 0: 2 rows of 1 runs' is not allowed"):
        points([row("a"), row("a")])


def test_the_grids_are_those_of_the_paper() -> None:
    grids = {family.method: family for family in FAMILIES}
    assert grids["l0"].settings == ("",)
    for name in ("l1", "paper"):
        assert {"t=0.8", "t=0.88", "t=0.92", "t=0.95", "t=0.999"} <= set(grids[name].settings)
    assert (grids["masking"].settings[0], grids["masking"].settings[-1]) == ("k=3", "k=50")
    assert (grids["semdedup"].settings[0], grids["semdedup"].settings[-1]) == ("t=0.9", "t=0.9999")
    assert len(grids["semdedup"].seeds) == 5
    assert Family("masking", "k", (3, 50)).settings == ("k=3", "k=50")


KEPT = st.tuples(st.integers(0, 50), st.integers(0, 50))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), KEPT), min_size=1, max_size=6))
def test_a_higher_floor_never_removes_more_and_never_costs_more(made: list[tuple[int, tuple[int, int]]]) -> None:
    family = points([each for place, one in enumerate(made) for each in measured(f"k={place}", *one)])
    found = [ecr(family, floor) for floor in sorted(FLOORS)]
    removals = [getattr(point, "removal", -1.0) for point in found]
    assert removals == sorted(removals, reverse=True)
    admissible = [cost.admissible for cost in floor_costs(family, sorted(FLOORS))]
    assert admissible == sorted(admissible, reverse=True)
