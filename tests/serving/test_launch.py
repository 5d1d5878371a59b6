from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lam_vllm.errors import LamError, OptionError, UnsupportedServerError
from lam_vllm.serving import launch
from lam_vllm.serving.launch import (
    OTHER_GROUPS,
    plugin_names,
    prepare,
    processes_asked_for,
    refuse_other_front_ends,
    split_flags,
    start_command,
)

ROOT = Path(__file__).parents[2]


def test_lam_flags_become_settings_and_the_rest_is_vllms() -> None:
    argv = ["model", "--lam-profile", "exact", "--port", "1", "--lam-min-tokens=5", "--lam-min-tokens", "6"]
    assert split_flags(argv) == (["model", "--port", "1"], {"profile": "exact", "min_tokens": "6"})


def test_settings_travel_in_the_environment_and_cached_tokens_are_asked_for() -> None:
    arguments, environment = prepare(["model", "--lam-profile", "exact", "--lam-store=false"], {"HOME": "/"})
    assert arguments == ["model", "--enable-prompt-tokens-details", "--shutdown-timeout=30"]
    assert (environment["LAM_PROFILE"], environment["LAM_STORE"], environment["HOME"]) == ("exact", "false", "/")
    again, _ = prepare(arguments, {})
    assert again == arguments
    for own in (["--shutdown_timeout", "5"], ["--config", "vllm.yaml"]):
        assert prepare(["model", *own], {})[0][-1] == "--enable-prompt-tokens-details"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["m", "--lam-profle", "exact"], "--lam-profle"),
        (["m", "--lam-profile"], "--lam-profile"),
        (["m", "--lam-profile", "--port"], "--lam-profile"),
        (["m", "--lam-profile", "lossy"], "--lam-profile"),
        (["m", "--lam-min-tokens", "few"], "--lam-min-tokens"),
        (["m", "--lam-observations", "tool+user"], "--lam-observations"),
    ],
)
def test_a_bad_flag_is_named(argv: list[str], name: str) -> None:
    with pytest.raises(OptionError) as caught:
        prepare(argv, {})
    assert caught.value.field == name


def test_a_bad_variable_is_named_as_a_variable() -> None:
    with pytest.raises(OptionError) as caught:
        prepare(["m", "--lam-profile", "exact"], {"LAM_MIN_TOKENS": "few"})
    assert caught.value.field == "LAM_MIN_TOKENS"


def test_a_bad_flag_ends_the_command_with_code_two_and_one_line() -> None:
    code = "import sys; from lam_vllm.serving.launch import serve; serve(sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", code, "model", "--lam-profile", "lossy"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.startswith("lam-vllm serve: --lam-profile: 'lossy' is not allowed")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("argv", [["m", "--grpc"], ["m", "--grpc-port", "1"], ["m", "--grpc_port=1"]])
def test_grpc_is_refused(argv: list[str]) -> None:
    with pytest.raises(UnsupportedServerError, match="--grpc"):
        refuse_other_front_ends(argv, {})


def test_the_rust_front_end_is_refused() -> None:
    with pytest.raises(UnsupportedServerError, match="VLLM_USE_RUST_FRONTEND"):
        refuse_other_front_ends(["m"], {"VLLM_USE_RUST_FRONTEND": "1"})
    refuse_other_front_ends(["m", "--port", "1"], {"VLLM_USE_RUST_FRONTEND": "0"})


def test_naming_the_plugin_drops_no_plugin_that_was_loaded_without_it() -> None:
    from importlib.metadata import entry_points

    names = plugin_names(None).split(",")
    assert names[0] == "lam"
    assert set(names[1:]) == {entry.name for group in OTHER_GROUPS for entry in entry_points(group=group)}


@pytest.mark.parametrize(("before", "after"), [("a,b", "a,b,lam"), ("lam", "lam"), ("", "lam"), ("lam,a", "lam,a")])
def test_a_users_own_list_of_plugins_is_kept(before: str, after: str) -> None:
    assert plugin_names(before) == after


def test_a_plugin_that_is_not_installed_is_told_before_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PLUGIN", "lam-that-is-not-there")
    with pytest.raises(LamError, match="is not installed"):
        plugin_names(None)


def test_a_plugin_that_does_not_load_is_told_with_its_cause_and_code_two(tmp_path: Path) -> None:
    package = tmp_path / "broken-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[vllm.endpoint_plugins]\nlam = no_such_module:Plugin\n")
    code = "import sys; from lam_vllm.serving.launch import serve; serve(sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", code, "model"], capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
    )  # fmt: skip
    assert ended.returncode == 2
    assert "no_such_module:Plugin" in ended.stderr and "No module named" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("has_vllm", "arguments", "command"),
    [
        (True, ["m"], ["vllm.entrypoints.cli.main", "serve", "m"]),
        (False, ["m", "--port", "1"], ["vllm.entrypoints.openai.api_server", "--model", "m", "--port", "1"]),
        (False, ["--config", "c"], ["vllm.entrypoints.openai.api_server", "--config", "c"]),
        (False, ["m", "--api_server_count=2"], ["lam_vllm.serving.subcommand", "serve", "m", "--api_server_count=2"]),
        (False, ["m", "-dp", "2"], ["lam_vllm.serving.subcommand", "serve", "m", "-dp", "2"]),
    ],
)
def test_how_vllm_is_started(
    has_vllm: bool, arguments: list[str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_has_version", lambda _package: has_vllm)
    assert start_command(arguments) == [sys.executable, "-m", *command]


@pytest.mark.parametrize(
    ("arguments", "processes"),
    [
        (["m"], 1),
        (["m", "--api-server-count", "3"], 3),
        (["m", "-asc", "2", "--data-parallel-size=4"], 4),
        (["m", "--data_parallel_size", "2"], 2),
        (["m", "--api-server-count"], 1),
        (["m", "--api-server-count", "many"], 1),
    ],
)
def test_processes_are_counted_before_the_start(arguments: list[str], processes: int) -> None:
    assert processes_asked_for(arguments) == processes


@pytest.mark.parametrize("asks", [["--api-server-count", "2"], ["--lam-store-url", "rows.sqlite"]])
def test_what_several_processes_read_is_refused_without_a_key(asks: list[str]) -> None:
    with pytest.raises(OptionError, match="LAM_KEY"):
        prepare(["m", "--lam-profile", "exact", *asks], {})
    prepare(["m", "--lam-profile", "exact", *asks], {"LAM_KEY": "k" * 32})


def test_launching_imports_neither_vllm_nor_the_metrics_library() -> None:
    code = (
        "import sys; from lam_vllm.serving.launch import prepare; prepare(['m', '--lam-profile', 'exact'], {});"
        "print([name for name in ('vllm', 'torch', 'prometheus_client') if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True, env={**os.environ}
    )
    assert ended.stdout.strip() == "[]"
