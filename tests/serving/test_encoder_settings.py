"""How the encoder runs: what each setting may be, and that a bad value says so."""

from __future__ import annotations

import os

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.serving.encoder_settings import AUDIT_RATE, NAMES, EncoderSettings
from lam_vllm.serving.launch import prepare
from lam_vllm.serving.options import request_options
from lam_vllm.serving.settings import server_settings

CORES = sorted(os.sched_getaffinity(0))
MANY = max(CORES) + 1


def settings(**values: str) -> EncoderSettings:
    return server_settings({f"LAM_{name.upper()}": value for name, value in values.items()}).encoder


def test_without_settings_there_is_no_encoder_and_most_cores_are_the_servers() -> None:
    assert settings() == EncoderSettings(None, max(1, len(CORES) // 4), None, AUDIT_RATE)
    assert settings(**dict.fromkeys(NAMES, "  ")) == settings()


def test_every_setting_is_read() -> None:
    first, last = CORES[0], CORES[-1]
    found = settings(encoder="minilm", threads=f"{len(CORES)}", cpus=f"{first}, {last}-{last}", audit_rate="0.25")
    assert found == EncoderSettings("minilm", len(CORES), frozenset({first, last}), 0.25)
    assert (settings(audit_rate="0").audit_rate, settings(audit_rate="1").audit_rate) == (0.0, 1.0)


BAD = [
    *(("threads", value, "an integer from 1 to") for value in ("0", "-1", "1.5", "two", "²", f"{len(CORES) + 1}")),
    *(
        ("cpus", value, "a list such as 0-3,8 of cores that this process may use")
        for value in ("all", "-1", "1-0", "0,,0", "0-", "-", "0-1-0", f"{MANY}", f"0-{MANY}", "0-99999999999", "0 1")
    ),
    *(("audit_rate", value, "a number from 0 to 1") for value in ("-0.1", "1.1", "nan", "inf", "often")),
]


@pytest.mark.parametrize(("name", "value", "allowed"), BAD)
def test_a_bad_value_names_the_setting_itself_and_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings(**{name: value})
    assert caught.value.field == f"LAM_{name.upper()}"
    assert caught.value.value == value
    assert caught.value.allowed.startswith(allowed)


@pytest.mark.parametrize(("name", "value"), [("threads", "0"), ("cpus", "all"), ("audit-rate", "2")])
def test_a_bad_flag_is_named_as_a_flag_before_the_server_starts(name: str, value: str) -> None:
    with pytest.raises(OptionError) as caught:
        prepare(["model", f"--lam-{name}={value}"], {})
    assert caught.value.field == f"--lam-{name}"


def test_a_request_cannot_set_what_belongs_to_the_process() -> None:
    default = server_settings({}).options
    for name in NAMES:
        with pytest.raises(OptionError, match=f"lam.{name}"):
            request_options(default, field={name: "1"})
