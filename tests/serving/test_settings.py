"""How a server is started: what the file, the environment and the number of processes say."""

from __future__ import annotations

from pathlib import Path

import pytest

from lam_vllm.compactors import MEMO_BYTES
from lam_vllm.config import CompactorConfig
from lam_vllm.errors import OptionError
from lam_vllm.serving.launch import prepare
from lam_vllm.serving.limits import TIME_LIMIT_SECONDS, Limits
from lam_vllm.serving.options import Options
from lam_vllm.serving.settings import SETTINGS, Settings, key_of, server_settings, settings_of_processes, variable


def from_file(tmp_path: Path, text: str, **environment: str) -> Settings:
    """The settings of a server that is started with this YAML file."""
    path = tmp_path / "lam.yaml"
    path.write_text(text)
    return server_settings({"LAM_CONFIG": str(path), **environment})


def test_every_setting_of_the_file_has_a_variable_of_the_same_name(tmp_path: Path) -> None:
    text = (
        "enabled: observe\nprofile: exact\nstore: false\nusage: true\nencoder: minilm\nthreads: 1\naudit_rate: 0.5\n"
        "canary: 0.25\ntime_limit_seconds: 7\nmemo_bytes: 2000000\nstore_bytes: 5000000\n"
    )
    in_file = from_file(tmp_path, text)
    values = dict(line.split(": ") for line in text.splitlines())
    assert in_file == server_settings({variable(name): value for name, value in values.items()})
    assert in_file.options == Options("observe", CompactorConfig(profile="exact"), store=False, usage=True)
    assert (in_file.rollout.canary, in_file.limits) == (0.25, Limits(7.0, 2_000_000))
    assert in_file.store.max_bytes == 5_000_000
    assert set(values) <= set(SETTINGS)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    settings = from_file(tmp_path, "profile: exact\ncanary: 0.25\nstore: false\n", LAM_CANARY="1", LAM_STORE="true")
    assert settings.rollout.canary == 1.0
    assert settings.options == Options("on", CompactorConfig(profile="exact"), store=True)


def test_without_a_word_everything_has_its_default() -> None:
    settings = server_settings({})
    assert settings.limits == Limits(TIME_LIMIT_SECONDS, MEMO_BYTES)
    assert (settings.rollout.canary, settings.rollout.models, settings.store.url) == (1.0, {}, None)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("LAM_CANARY", "1.5", "from 0 to 1"),
        ("LAM_CANARY", "nan", "from 0 to 1"),
        ("LAM_CANARY", "few", "from 0 to 1"),
        ("LAM_TIME_LIMIT_SECONDS", "0", "from 1 to 86400"),
        ("LAM_TIME_LIMIT_SECONDS", "inf", "from 1 to 86400"),
        ("LAM_MEMO_BYTES", "12", "an integer of at least 1000000"),
        ("LAM_MEMO_BYTES", "1e9", "an integer of at least 1000000"),
        ("LAM_AUDIT_RATE", "-0.1", "from 0 to 1"),
        ("LAM_USAGE", "maybe", "true, false"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(OptionError, match=allowed) as caught:
        server_settings({name: value})
    assert (caught.value.field, str(caught.value.value)) == (name, value)


def test_a_model_has_defaults_of_its_own(tmp_path: Path) -> None:
    text = (
        "profile: exact\nmin_tokens: 9\n"
        "models:\n  big: {directory_aliases: true}\n  adapter: false\n  watched: observe\n  other: {profile: paper}\n"
    )
    settings = from_file(tmp_path, text)
    base = CompactorConfig(profile="exact", min_tokens=9)
    models = settings.rollout.models
    assert models["big"] == Options("on", base.model_copy(update={"directory_aliases": True}), store=True)
    assert (models["adapter"].mode, models["watched"].mode) == ("off", "observe")
    assert settings.profiles == {"exact", "paper"}
    assert settings.rollout.default_for("big", settings.options) is models["big"]
    for unknown in ("small", None, 7, ["big"]):
        assert settings.rollout.default_for(unknown, settings.options) is settings.options


def test_a_model_may_be_on_where_the_server_is_off(tmp_path: Path) -> None:
    settings = from_file(tmp_path, "models:\n  big: {profile: exact}\n")
    assert settings.options.mode == "off"
    assert settings.rollout.models["big"].mode == "on"
    assert settings.is_on
    assert not server_settings({}).is_on


def test_an_operators_option_of_a_model_turns_nothing_on(tmp_path: Path) -> None:
    text = "models: {kept: {store: false}, told: {usage: true}, bare: {}}"
    assert not from_file(tmp_path, text).is_on
    on = server_settings({"LAM_CONFIG": str(tmp_path / "lam.yaml")}, on=True)
    assert {options.mode for options in (on.options, *on.rollout.models.values())} == {"on"}


def test_what_is_there_for_nothing_else_is_on_unless_said_otherwise() -> None:
    assert server_settings({}, on=True).options.mode == "on"
    assert server_settings({"LAM_ENABLED": "observe"}, on=True).options.mode == "observe"
    assert server_settings({"LAM_PROFILE": "exact", "LAM_ENABLED": "false"}, on=True).options.mode == "off"


def test_a_key_where_others_could_read_it_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="LAM_KEY") as in_file:
        from_file(tmp_path, "key: a-secret-of-mine")
    with pytest.raises(OptionError, match="LAM_KEY") as in_flag:
        prepare(["m", "--lam-key=a-secret-of-mine"], {})
    assert "a-secret" not in f"{in_file.value}{in_flag.value}"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("models: 7", "models"),
        ("models: {3: false}", "models"),
        ("models: {big: 7}", "models.big"),
        ("models: {big: {profile: lossy}}", "models.big.profile"),
        ("models: {big: {threads: 2}}", "models.big.threads"),
        ("models: {big: {observations: tool+user}}", "models.big.observations"),
        ("modles: {}", "modles"),
        ("enabled: perhaps", "enabled"),
    ],
)
def test_a_bad_word_in_the_file_is_named_by_its_path(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(OptionError) as caught:
        from_file(tmp_path, text)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("environment", "processes", "needed"),
    [
        ({}, 1, False),
        ({}, 2, True),
        ({"LAM_STORE_URL": "/tmp/rows.sqlite"}, 1, True),
        ({"LAM_STORE_URL": "redis://127.0.0.1:1"}, 1, True),
    ],
)
def test_whatever_more_than_one_process_reads_needs_a_key(
    environment: dict[str, str], processes: int, needed: bool, tmp_path: Path
) -> None:
    settings = server_settings(environment)
    if not needed:
        assert key_of(environment, settings, processes) != key_of(environment, settings, processes)
        return
    with pytest.raises(OptionError, match="LAM_KEY"):
        key_of(environment, settings, processes)
    (tmp_path / "key").write_text("k" * 32)
    given = [{"LAM_KEY": "k" * 32}, {"LAM_KEY_FILE": str(tmp_path / "key")}, in_a_file(tmp_path)]
    assert len({key_of({**environment, **key}, settings, processes) for key in given}) == 1


def in_a_file(tmp_path: Path) -> dict[str, str]:
    """The variable of a YAML file that names the key's file."""
    (tmp_path / "lam.yaml").write_text(f"key_file: {tmp_path / 'key'}")
    return {"LAM_CONFIG": str(tmp_path / "lam.yaml")}


def test_several_processes_share_a_file_unless_a_store_is_named(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    named = {"LAM_STORE_URL": "redis://127.0.0.1:1"}
    assert settings_of_processes(state, 1) == server_settings({})
    assert settings_of_processes(named, 2) == server_settings(named)
    shared = settings_of_processes(state, 2).store
    assert shared == server_settings({"LAM_STORE_URL": str(tmp_path / "lam-vllm/store.sqlite")}).store
