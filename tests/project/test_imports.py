"""Imports point one way, and the light parts of the package stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "lam_vllm"
ROOT = "lam_vllm"

# A module may import only from lines above its own. The root stands where everything it exports is defined.
ORDER = [
    "errors",
    "types",
    "bound",
    "config",
    "resources",
    "stopwatch",
    "stores",
    "messages",
    "tokens",
    "windows",
    "ops",
    "codec",
    "encoders",
    "search",
    "near_duplicates",
    "stubs",
    "lines",
    "prices",
    "aliases",
    "cuts",
    "line_index",
    "memory",
    "index",
    "prefix_memo",
    "runs",
    "shared_lines",
    "guarded",
    "paper",
    "shorten",
    "admit",
    "account",
    "ahead",
    "compactor",
    "compactors",
    "pool",
    "worker",
    "reconstruct",
    "prefix",
    ROOT,
    "records",
    "metrics",
    "serving",
    "performance_model",
    "evaluation",
    "commands",
    "cli",
]


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def place(path: Path) -> str:
    """The name in ORDER under which a source file falls."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return ROOT if first == "__init__" else first


def imported(tree: ast.AST) -> Iterator[str]:
    """Every dotted name that a file imports, wherever in the file the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_places(tree: ast.AST) -> Iterator[str]:
    """The places in ORDER that a file imports; a name that the root merely exports counts as the root."""
    for name in imported(tree):
        parts = name.split(".")
        if parts[0] == ROOT:
            yield parts[1] if len(parts) > 1 and parts[1] in ORDER else ROOT


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_modules_listed_before_it(path: Path) -> None:
    here = place(path)
    assert here in ORDER, f"{here} has no place in the import order yet"
    allowed = {here, *ORDER[: ORDER.index(here)]}
    assert set(own_places(ast.parse(path.read_text(encoding="utf-8")))) <= allowed


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_serving_imports_vllm(path: Path) -> None:
    names = {name.split(".")[0] for name in imported(ast.parse(path.read_text(encoding="utf-8")))}
    assert place(path) == "serving" or "vllm" not in names


def test_the_checks_see_imports_inside_functions_and_under_type_checking() -> None:
    text = "if TYPE_CHECKING:\n    from lam_vllm.cli import main\ndef f():\n    import lam_vllm.serving.launch\n"
    assert set(own_places(ast.parse(text))) == {"cli", "serving"}


def test_importing_the_package_loads_neither_torch_nor_vllm() -> None:
    code = "import sys, lam_vllm; print(*sorted({'torch', 'vllm', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_command_line_loads_neither_torch_nor_vllm() -> None:
    code = "import sys, lam_vllm.cli; print(*sorted({'torch', 'vllm', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
