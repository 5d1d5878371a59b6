from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from lam_vllm.serving.switch import Switch


def turn_off(folder: Path) -> None:
    Switch(folder).turn(False)


def test_a_switch_of_one_process() -> None:
    switch = Switch()
    assert switch.on
    switch.turn(False)
    assert not switch.on
    assert Switch().on
    switch.turn(True)
    assert switch.on


def test_processes_with_one_parent_share_the_switch(tmp_path: Path) -> None:
    first, second = Switch(tmp_path), Switch(tmp_path)
    first.turn(False)
    assert not second.on
    second.turn(True)
    second.turn(True)
    assert first.on


def test_another_servers_switch_in_the_same_folder_is_another_one(tmp_path: Path) -> None:
    ours = Switch(tmp_path)
    theirs = multiprocessing.get_context("spawn").Process(target=turn_off, args=(tmp_path,))
    theirs.start()
    theirs.join()
    assert theirs.exitcode == 0
    assert len(list(tmp_path.iterdir())) == 1
    assert ours.on


def test_a_switch_that_cannot_be_turned_stays_as_it_was(tmp_path: Path) -> None:
    switch = Switch(tmp_path / "gone")
    with pytest.raises(OSError, match="gone"):
        switch.turn(False)
    assert switch.on
