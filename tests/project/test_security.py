"""SECURITY.md names tests that exist, and what it says of the source is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.serving.launch import split_flags
from lam_vllm.serving.options import FIELDS
from lam_vllm.serving.settings import SERVER_NAMES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "lam_vllm"
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def called(tree: ast.AST) -> Iterator[str]:
    """The dotted names of everything that a file calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the functions at the top of a test module."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@cache
def calls_of(path: Path) -> frozenset[str]:
    return frozenset(called(ast.parse(path.read_text(encoding="utf-8"))))


def callers(pattern: str) -> set[str]:
    """The modules that call something of which the whole name matches."""
    return {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(re.fullmatch(pattern, name) for name in calls_of(path))
    }


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_test_that_is_named_exists(file: str, test: str) -> None:
    assert test in functions_of(file)


def test_the_page_names_tests_for_every_claim_of_its_tables() -> None:
    assert len(NAMED) > 60
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("|---", "| party"))]
    claims = [row for row in rows if row.count("|") == 4 and "| test |" not in row]
    parties = [row for row in claims if "tests/" not in row]
    assert [row.split("|")[1].strip().partition(":")[0] for row in parties] == [
        "operator",
        "client with the server's API key",
        "tenant",
        "tool output",
        "anybody who reaches the port",
    ]


def test_xxh3_names_nothing_that_is_handed_out() -> None:
    assert callers(r"xxhash\..*|_chain") - {"messages.py"} == {
        "codec/wire.py",  # finds damage; what is kept is sealed by a keyed hash
        "evaluation/baselines/minhash.py",
        "performance_model/rates.py",
    }
    assert callers("quick_digests") == {"serving/recheck.py", "serving/prefix_watch.py", "serving/work.py"}
    assert callers(".*chain_digests") >= {"compactor.py", "serving/prefix_watch.py", "serving/rollout.py"}


def test_only_what_this_server_wrote_is_unpickled() -> None:
    """The worker's pipe unpickles what it receives, too; nobody but the two ends of a socket pair has it."""
    assert callers(r"pickle\.(loads|load|Unpickler)|joblib\.load|marshal\.loads?|.*pipe\.recv") == {
        "tokens.py",
        "worker/__main__.py",
        "worker/client.py",
    }


def test_nothing_is_evaluated_and_yaml_is_read_safely() -> None:
    assert callers(r"eval|exec|compile|os\.system|os\.popen|yaml\.(load|unsafe_load|full_load)") == set()
    shells = [path for path in PACKAGE.rglob("*.py") if "shell=True" in path.read_text(encoding="utf-8")]
    assert shells == []


def test_no_setting_of_the_process_is_an_option_of_a_request() -> None:
    assert set(FIELDS) & {*SERVER_NAMES, "key", "key_file", "config", "models"} == set()


def test_the_server_key_is_no_flag() -> None:
    for flag in ("--lam-key=a secret of sixteen bytes", "--lam-key"):
        with pytest.raises(OptionError):
            split_flags(["model", flag, "a secret of sixteen bytes"])
