"""Every case has a test here or a reason why not, and what the page points to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = (HERE / "README.md").read_text(encoding="utf-8")
CASES = {
    "A": (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 14, 15, 16, 17),
    "B": (18, 19, 20, 21, 23, 25, 26, 27, 28, 30, 31),
    "C": (32, 33, 34, 35, 37, 39, 40, 41, 42, 43, 44, 45, 48, 49, 50, 51),
    "D": (52, 53, 55, 56, 57, 58, 60),
    "E": (61, 63, 65, 66, 67, 68, 69, 71),
    "F": (72, 73, 74, 78),
    "G": (79, 80, 82, 83, 84),
    "H": (87, 89, 90, 91, 94, 95),
}
"""The numbers of each group; those in between were never given."""


def numbers_in(pattern: str) -> set[int]:
    """Numbers in the names of the tests of these modules."""
    names = [
        name
        for file in HERE.glob(pattern)
        for name in re.findall(r"^def test_(f\d\d\w*)", file.read_text(), re.MULTILINE)
    ]
    return {int(number) for name in names for number in re.findall(r"(?:^|_)f(\d\d)(?=_)", name)}


def numbers_under(heading: str) -> set[int]:
    """Numbers in the first cells of the table under a heading."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, f"README.md has no heading {heading!r}"
    cells = re.findall(r"^\|([^|]*)\|", section.group(1), re.MULTILINE)
    return {int(number) for cell in cells for number in re.findall(r"F(\d\d)", cell)}


def test_there_are_71_of_them() -> None:
    assert len({number for numbers in CASES.values() for number in numbers}) == 71


@pytest.mark.parametrize("group", CASES)
def test_every_case_has_a_test_or_a_reason_and_not_both(group: str) -> None:
    here, reasons = numbers_in(f"test_{group.lower()}_*.py"), numbers_under("Cases without a test here")
    assert set(CASES[group]) - here == set(CASES[group]) & reasons


def test_no_number_is_made_up() -> None:
    known = {number for numbers in CASES.values() for number in numbers}
    assert numbers_in("test_*.py") | {int(number) for number in re.findall(r"\bF(\d\d)\b", PAGE)} <= known


def test_what_the_page_points_to_is_there() -> None:
    files = set(re.findall(r"`((?:tests|bench)/[\w/.]+)`", PAGE)) | {
        f"tests/field/{n}" for n in re.findall(r"`(test_\w+\.py)`", PAGE)
    }
    assert len(files) > 20
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def test_every_module_is_on_the_page() -> None:
    assert [file.name for file in HERE.glob("test_*.py") if f"`{file.name}`" not in PAGE] == []
