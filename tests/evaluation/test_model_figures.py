"""The figures of the performance model: what their lines go through, what their axes and names say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lam_vllm.evaluation.study.charts import LABEL_GAP, Series, draw_lines, new_figure
from lam_vllm.evaluation.study.model_figures import COMPACTIONS, SIZES_TOKENS, Modelled, model_figures
from lam_vllm.performance_model.accounting import PAPER
from lam_vllm.performance_model.compaction import shared_lines
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import forecast, forecast_nothing
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.presets import A100_40GB, GB10
from lam_vllm.performance_model.turn import turn_cost
from lam_vllm.performance_model.workload import removing, steady_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

ENGINE = Engine(GB10, LLAMA_3_1_8B, 3)
RUN = removing(steady_run(30, 700, 100), 0.3)
HELD = {"no compaction": [700.0, 1_400.0, 2_100.0], "admit exact": [520.0, 1_040.0, 1_560.0, 2_080.0]}


def made(engine: Engine = ENGINE, runs: int = 1) -> Modelled:
    plain, admitted = forecast_nothing(engine, [RUN]), forecast(engine, [RUN], "admit", "exact", shared_lines)
    return Modelled(engine, [plain, admitted], HELD, (GB10, A100_40GB), 600, 100, runs)


def names(ax: Axes) -> dict[str, Annotation]:
    """The names at the lines' ends."""
    return {each.get_text(): each for each in ax.texts if each.get_bbox_patch()}  # type: ignore[misc]


def lines(ax: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """Points of the lines by the name at their end, which has their colour."""
    colours = {each.get_color(): name for name, each in names(ax).items()}
    marked = [line for line in ax.get_lines() if line.get_marker() == "o"]
    return {colours[line.get_color()]: (list(line.get_xdata()), list(line.get_ydata())) for line in marked}  # type: ignore[arg-type]


def test_figure_1_goes_through_every_turn_of_each_policy() -> None:
    modelled = made()
    (ax,) = model_figures(modelled)["figure_1"].axes
    for each in modelled.forecasts:
        turns, seconds = lines(ax)[each.policy]
        assert turns == list(range(1, 31)) and seconds == each.ttft
    assert "batch 3" in ax.get_title("left") and "accounting exact" in ax.get_title("left")
    assert ax.get_xlabel() == "turn"
    assert "mean over those of 4 runs" in model_figures(made(runs=4))["figure_1"].axes[0].get_xlabel()


def test_figure_8_has_the_same_axes_for_both_devices() -> None:
    one, other = model_figures(made())["figure_8"].axes
    assert one.get_ylim() == other.get_ylim() and one.get_xlim() == other.get_xlim()
    for ax, device in ((one, GB10), (other, A100_40GB)):
        assert ax.get_title("left").endswith(f"{device.name}\n")
        engine = replace(ENGINE, device=device)
        for name, compaction in COMPACTIONS.items():
            assert lines(ax)[name] == (list(SIZES_TOKENS), [compaction(engine, size) for size in SIZES_TOKENS])


def test_figure_8_shows_the_line_that_lies_under_another() -> None:
    (ax, _) = model_figures(made())["figure_8"].axes
    styles = [line.get_linestyle() for line in ax.get_lines()]
    order = list(COMPACTIONS)
    assert styles[order.index("SemDeDup")] == "--" and styles[order.index("LAM")] == "-"


@pytest.mark.parametrize("engine", [ENGINE, Engine(GB10, LLAMA_3_1_8B, 1, PAPER)], ids=["exact", "paper"])
def test_figure_9a_is_phi_of_the_mean_turn(engine: Engine) -> None:
    (ax,) = model_figures(made(engine))["figure_9a"].axes
    assert set(lines(ax)) == {f"batch {batch}" for batch in {1, 8, 32, engine.batch}}
    for name, (sizes, shares) in lines(ax).items():
        batched = replace(engine, batch=int(name.split()[1]))
        assert shares == [100 * turn_cost(batched, 600, 100, size).phi for size in sizes]


def test_figure_9c_is_what_each_policy_holds_and_what_there_is_room_for() -> None:
    (ax,) = model_figures(made())["figure_9c"].axes
    assert lines(ax) == {name: (list(range(1, len(held) + 1)), held) for name, held in HELD.items()}
    said = [each.get_text() for each in ax.texts]
    assert "window: 131,072 tokens" in said and ax.get_ylim()[1] > 131_072
    assert "batch 3" in ax.get_title("left")
    room = [line for line in ax.get_lines() if line.get_marker() != "o"]
    assert [list(line.get_ydata()) for line in room] == [[131_072, 131_072]]  # type: ignore[arg-type]
    (ax,) = model_figures(made(Engine(GB10, LLAMA_3_1_8B, 1, PAPER)))["figure_9c"].axes
    assert any(each.get_text().startswith("memory: 854,") for each in ax.texts)


def test_no_name_lies_on_a_line_or_level() -> None:
    (ax,) = new_figure()[1]
    flat, steep = Series("flat", [0, 3], [0.5, 0.5]), Series("steep", [0, 3], [1.0, 0.8])
    ends = Series("ends on it", [0, 1], [0.0, 0.5]), Series("ends there", [0, 2], [0.0, 0.2])
    draw_lines(ax, [flat, steep, *ends], levels=(0.2,))
    to_share = ax.transData + ax.transAxes.inverted()
    for name, level in (("ends on it", 0.5), ("ends there", 0.2)):
        _, height = names(ax)[name].xy
        assert abs(height - to_share.transform((0, level))[1]) >= LABEL_GAP / 2
