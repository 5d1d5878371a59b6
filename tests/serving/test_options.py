from __future__ import annotations

from typing import Any

import pytest

from lam_vllm.config import CompactorConfig
from lam_vllm.errors import OptionError
from lam_vllm.serving.options import Options, request_options
from lam_vllm.serving.settings import server_settings

OFF = Options("off", CompactorConfig(), True)
ON = Options("on", CompactorConfig(profile="exact"), True)


def carried(carrier: str, options: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments that send `options` by one carrier."""
    import json

    if carrier == "header":
        return {"header": json.dumps(options)}
    if carrier == "field":
        return {"field": options}
    return {"xargs": {f"lam_{key}": value for key, value in options.items()}}


WRITTEN = {"header": "x-lam.{}", "field": "lam.{}", "xargs": "vllm_xargs.lam_{}"}
every_carrier = pytest.mark.parametrize("carrier", WRITTEN)


def test_aliases_are_asked_for_in_every_carrier() -> None:
    asked = CompactorConfig(profile="exact", directory_aliases=True)
    for given in ({"field": {"directory_aliases": True}}, {"xargs": {"lam_directory_aliases": 1}}):
        assert request_options(ON, **given).config == asked
    assert request_options(ON, header='{"directory_aliases": true}').config == asked
    with pytest.raises(OptionError, match=r"lam\.directory_aliases.*2.*true or false"):
        request_options(ON, field={"directory_aliases": 2})


def test_a_request_that_says_nothing_gets_the_servers_default_itself() -> None:
    assert request_options(ON) is ON


@every_carrier
def test_each_carrier_sets_an_option(carrier: str) -> None:
    got = request_options(ON, **carried(carrier, {"min_tokens": 3, "store": False, "exclude_tools": ["ls"]}))
    assert got == Options("on", CompactorConfig(profile="exact", min_tokens=3, exclude_tools=("ls",)), False)


def test_carriers_merge_key_by_key_the_header_over_the_field_over_xargs() -> None:
    got = request_options(
        ON,
        header='{"min_tokens": 1}',
        field={"min_tokens": 2, "threshold_cos": 0.5},
        xargs={"lam_min_tokens": 3, "lam_threshold_cos": 0.25, "lam_max_reference_distance_tokens": 9, "other": 1},
    )
    config = CompactorConfig(profile="exact", min_tokens=1, threshold_cos=0.5, max_reference_distance_tokens=9)
    assert got.config == config


@every_carrier
def test_naming_an_option_turns_a_request_on_where_the_server_is_off(carrier: str) -> None:
    assert request_options(OFF, **carried(carrier, {"min_tokens": 3})).mode == "on"


def test_naming_an_option_does_not_turn_an_observing_server_into_a_changing_one() -> None:
    observing = Options("observe", CompactorConfig(), True)
    assert request_options(observing, field={"min_tokens": 3}).mode == "observe"
    assert request_options(observing, field={"min_tokens": 3, "enabled": True}).mode == "on"


@pytest.mark.parametrize(
    ("carriers", "mode"),
    [
        ({"field": True}, "on"),
        ({"field": "observe"}, "observe"),
        ({"header": "observe"}, "observe"),
        ({"header": "true"}, "on"),
        ({"header": '{"enabled": "observe"}'}, "observe"),
        ({"xargs": {"lam_enabled": 1}}, "on"),
        ({"xargs": {"lam_enabled": "observe"}}, "observe"),
        ({"field": {}}, "off"),
        ({"field": None}, "off"),
    ],
)
def test_short_forms(carriers: dict[str, Any], mode: str) -> None:
    assert request_options(OFF, **carriers).mode == mode


@pytest.mark.parametrize("off", [{"header": "off"}, {"field": False}, {"field": "off"}, {"xargs": {"lam_enabled": 0}}])
@pytest.mark.parametrize(
    "other", [{"header": "true"}, {"header": "{"}, {"field": {"enabled": True}}, {"xargs": {"lam_bogus": 1}}]
)
def test_an_explicit_off_wins_over_whatever_the_other_carriers_say(off: dict[str, Any], other: dict[str, Any]) -> None:
    if not off.keys() & other.keys():
        assert request_options(ON, **other, **off).mode == "off"


@every_carrier
@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("min_tokens", -1, "at least 0"),
        ("min_tokens", "16", "an integer"),
        ("profile", "lossy", "exact, guarded, paper"),
        ("threshold_cos", 0, "above 0"),
        ("search", "best", "exhaustive, banded, pruned"),
        ("observations", "user", "tool, tool+user"),
        ("enabled", "perhaps", "true, false, observe"),
        ("enabled", 2, "true, false, observe"),
        ("store", "no", "true, false"),
        ("max_windows", 5, "one of the options"),
        ("min_token", 5, "min_tokens"),
    ],
)
def test_a_bad_option_is_an_error_under_the_name_its_user_wrote(
    carrier: str, key: str, value: Any, allowed: str
) -> None:
    with pytest.raises(OptionError) as caught:
        request_options(ON, **carried(carrier, {key: value}))
    assert caught.value.field == WRITTEN[carrier].format(key)
    assert caught.value.value == value
    assert allowed in caught.value.allowed


@pytest.mark.parametrize(
    ("carriers", "name"),
    [
        ({"header": "{"}, "x-lam"),
        ({"header": "[1]"}, "x-lam"),
        ({"header": 100_000 * "["}, "x-lam"),
        ({"field": 3.5}, "lam"),
    ],
    ids=["no JSON", "no object", "nested too deeply", "a number"],
)
def test_a_carrier_that_cannot_be_read_is_an_error(carriers: dict[str, Any], name: str) -> None:
    with pytest.raises(OptionError) as caught:
        request_options(ON, **carriers)
    assert caught.value.field == name


@every_carrier
def test_a_search_is_chosen_in_every_carrier(carrier: str) -> None:
    assert request_options(ON, **carried(carrier, {"search": "banded"})).config.search == "banded"


@every_carrier
def test_a_search_without_the_basis_that_it_needs_is_an_error_before_anything_is_compacted(carrier: str) -> None:
    guarded = Options("on", CompactorConfig(profile="guarded"), True)
    given = carried(carrier, {"search": "pruned"})
    with pytest.raises(OptionError, match="exhaustive, banded; pruned needs an encoder") as caught:
        request_options(guarded, **given, has_encoder=True)
    assert caught.value.field == WRITTEN[carrier].format("search")
    assert request_options(guarded, **given, has_encoder=True, has_basis=True).config.search == "pruned"
    assert request_options(ON, **given).config.search == "pruned"  # `exact` searches nothing


@every_carrier
def test_a_profile_without_its_encoder_names_the_extra_and_the_way_round(carrier: str) -> None:
    with pytest.raises(OptionError, match=r"lam-vllm\[encoder\]") as caught:
        request_options(ON, **carried(carrier, {"profile": "guarded"}))
    assert caught.value.field == WRITTEN[carrier].format("profile")
    assert caught.value.allowed.startswith("exact")
    assert request_options(ON, **carried(carrier, {"profile": "guarded"}), has_encoder=True).config.profile == "guarded"


@every_carrier
def test_a_wish_for_usage_alone_turns_nothing_on(carrier: str) -> None:
    wished = request_options(OFF, **carried(carrier, {"usage": True}))
    assert (wished.mode, wished.usage, wished.asked) == ("off", True, False)
    assert request_options(ON, **carried(carrier, {"usage": True})) == Options("on", ON.config, True, usage=True)


@every_carrier
def test_a_request_that_chose_its_mode_is_told_from_one_that_did_not(carrier: str) -> None:
    assert request_options(OFF, **carried(carrier, {"profile": "exact"})).asked
    assert request_options(ON, **carried(carrier, {"enabled": True})).asked
    assert request_options(ON, **carried(carrier, {"enabled": False})).asked
    assert request_options(ON, **carried(carrier, {"profile": "exact"})).asked
    assert not request_options(ON, **carried(carrier, {"min_tokens": 3})).asked


def test_a_server_is_off_until_a_profile_is_named() -> None:
    assert server_settings({}).options.mode == "off"
    assert server_settings({"LAM_PROFILE": "exact"}).options == ON
    assert server_settings({"LAM_PROFILE": "exact", "LAM_ENABLED": "false"}).options.mode == "off"
    assert server_settings({"LAM_ENABLED": "observe"}).options.mode == "observe"


def test_server_settings_are_read_from_the_environment_over_the_config_file(tmp_path: Any) -> None:
    path = tmp_path / "lam.yaml"
    path.write_text("min_tokens: 5\nmax_windows: 7\nprofile: paper\n")
    got = server_settings(
        {"LAM_CONFIG": str(path), "LAM_PROFILE": "guarded", "LAM_EXCLUDE_TOOLS": "ls, cat", "LAM_THRESHOLD_COS": "0.9",
         "LAM_STORE": "false", "LAM_ENCODER": "minilm", "LAM_MAX_REFERENCE_DISTANCE_TOKENS": "null"}
    )  # fmt: skip
    assert got.encoder.name == "minilm"
    assert got.options.store is False
    assert got.options.config == CompactorConfig(
        profile="guarded", min_tokens=5, max_windows=7, exclude_tools=("ls", "cat"), threshold_cos=0.9
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("LAM_MIN_TOKENS", "few"), ("LAM_ENABLED", "maybe"), ("LAM_STORE", "7"), ("LAM_OBSERVATIONS", "tool+user")],
)
def test_a_bad_server_setting_is_named_as_it_was_written(name: str, value: str) -> None:
    with pytest.raises(OptionError) as caught:
        server_settings({name: value})
    assert caught.value.field == name
