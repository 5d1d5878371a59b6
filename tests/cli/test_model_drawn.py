"""`lam-vllm model --figures`: the files, and how far they follow each policy."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lam_vllm.commands.model import Options, assumed, make_engine
from lam_vllm.commands.model_output import drawn
from lam_vllm.commands.model_report import make_report
from lam_vllm.performance_model.capacity import most_context_tokens
from tests.cli.modelled import model


def test_figures_are_real_pictures(tmp_path: Path) -> None:
    done = model("--figures", "--out", tmp_path / "drawn", "--turns", 40)
    assert done.exit_code == 0, done.output
    for name in ("figure_1", "figure_8", "figure_9a", "figure_9c"):
        head = (tmp_path / f"drawn/{name}.png").read_bytes()
        width, height = struct.unpack(">II", head[16:24])
        assert head[:8] == b"\x89PNG\r\n\x1a\n" and width > 800 and height > 500 and len(head) > 10_000


@pytest.mark.parametrize(("accounting", "plain", "admitted"), [("exact", 205, 255), ("paper", 1_340, 1_727)])
def test_how_full_the_cache_gets_is_drawn_to_the_end_of_each_policy(accounting: str, plain: int, admitted: int) -> None:
    options = Options(accounting=accounting)
    engine = make_engine(options)
    held = drawn(make_report(engine, [assumed(engine, options)], 32_000)).cached_tokens
    one, other = held.values()
    assert abs(len(one) - plain) <= 1 and abs(len(other) - admitted) <= 1
    most = most_context_tokens(engine)
    assert all(most - 637 < each[-1] <= most for each in (one, other))
    assert one[99] == pytest.approx(100 * 637) and other[99] < one[99]


def test_where_an_end_was_asked_for_the_figure_ends_there() -> None:
    options = Options(turns=40)
    engine = make_engine(options)
    held = drawn(make_report(engine, [assumed(engine, options)], 32_000)).cached_tokens
    assert [len(each) for each in held.values()] == [40, 40]
