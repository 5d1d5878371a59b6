"""How the encoder runs: what each setting may be, and that a bad value says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from lam_vllm.encoders.device import WANTED
from lam_vllm.errors import EncoderError, OptionError
from lam_vllm.metrics import Metrics
from lam_vllm.serving.encoder_settings import AUDIT_RATE, NAMES, EncoderSettings
from lam_vllm.serving.launch import prepare, settings_of
from lam_vllm.serving.options import request_options
from lam_vllm.serving.service import build_compactions
from lam_vllm.serving.settings import Settings, server_settings
from lam_vllm.serving.work import Compactions
from tests.conftest import SERVED_MODEL
from tests.core.test_device import without_gpu
from tests.serving.fakes import count_words

CORES = sorted(os.sched_getaffinity(0))
MANY = max(CORES) + 1


def settings(**values: str) -> EncoderSettings:
    return server_settings({f"LAM_{name.upper()}": value for name, value in values.items()}).encoder


def test_without_settings_there_is_no_encoder_and_most_cores_are_the_servers() -> None:
    assert settings() == EncoderSettings(None, max(1, len(CORES) // 4), None, AUDIT_RATE, "auto")
    assert settings(**dict.fromkeys(NAMES, "  ")) == settings()


def test_every_setting_is_read() -> None:
    first, last = CORES[0], CORES[-1]
    cores = {"threads": f"{len(CORES)}", "cpus": f"{first}, {last}-{last}"}
    found = settings(encoder="minilm", device="cpu", audit_rate="0.25", **cores)
    assert found == EncoderSettings("minilm", len(CORES), frozenset({first, last}), 0.25, "cpu")
    assert (settings(audit_rate="0").audit_rate, settings(audit_rate="1").audit_rate) == (0.0, 1.0)
    assert [settings(device=device).device for device in WANTED] == ["auto", "cpu", "cuda"]


def test_the_device_is_read_from_every_carrier_and_a_flag_wins(tmp_path: Path) -> None:
    (tmp_path / "lam.yaml").write_text("device: cpu\n")
    file = {"LAM_CONFIG": str(tmp_path / "lam.yaml")}
    assert server_settings(file).encoder.device == "cpu"
    assert server_settings({**file, "LAM_DEVICE": "auto"}).encoder.device == "auto"
    _, _, flagged, _ = settings_of(["model", "--lam-device=cpu"], {"LAM_DEVICE": "auto"})
    assert flagged.encoder.device == "cpu"


@without_gpu
def test_without_a_gpu_cuda_is_refused_before_the_server_starts_by_the_name_that_asked() -> None:
    for argv, environment, name in (
        (["model", "--lam-device=cuda"], {}, "--lam-device"),
        (["model"], {"LAM_DEVICE": "cuda"}, "LAM_DEVICE"),
    ):
        with pytest.raises(OptionError, match="'cuda' is not allowed; .* on this machine: torch sees no GPU") as caught:
            prepare(argv, environment)
        assert caught.value.field == name


@without_gpu
def test_without_a_gpu_cuda_is_refused_by_a_server_that_is_started_otherwise() -> None:
    settings = server_settings({"LAM_DEVICE": "cuda", "LAM_ENCODER": "minilm"})
    with pytest.raises(EncoderError, match="device: 'cuda' is not allowed; .* on this machine: torch sees no GPU"):
        compactions(settings)


def test_cuda_without_an_encoder_is_refused() -> None:
    with pytest.raises(OptionError, match="device: 'cuda' is not allowed; .* --lam-encoder"):
        compactions(server_settings({"LAM_DEVICE": "cuda"}))


def compactions(settings: Settings) -> Compactions:
    """As a server builds them when it starts."""
    return build_compactions(
        settings,
        key=bytes(32),
        count_tokens=count_words,
        portable=lambda: (SERVED_MODEL / "tokenizer.json").read_text(),
        tokenizer_name="smollm2",
        metrics=Metrics(CollectorRegistry()),
    )


BAD = [
    *(("threads", value, "an integer from 1 to") for value in ("0", "-1", "1.5", "two", "²", f"{len(CORES) + 1}")),
    *(
        ("cpus", value, "a list such as 0-3,8 of cores that this process may use")
        for value in ("all", "-1", "1-0", "0,,0", "0-", "-", "0-1-0", f"{MANY}", f"0-{MANY}", "0-99999999999", "0 1")
    ),
    *(("device", value, "one of auto, cpu, cuda") for value in ("gpu", "cuda:1", "CPU", "0")),
    *(("audit_rate", value, "a number from 0 to 1") for value in ("-0.1", "1.1", "nan", "inf", "often")),
]


@pytest.mark.parametrize(("name", "value", "allowed"), BAD)
def test_a_bad_value_names_the_setting_itself_and_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings(**{name: value})
    assert caught.value.field == f"LAM_{name.upper()}"
    assert caught.value.value == value
    assert caught.value.allowed.startswith(allowed)


@pytest.mark.parametrize(("name", "value"), [("threads", "0"), ("cpus", "all"), ("audit-rate", "2"), ("device", "gpu")])
def test_a_bad_flag_is_named_as_a_flag_before_the_server_starts(name: str, value: str) -> None:
    with pytest.raises(OptionError) as caught:
        prepare(["model", f"--lam-{name}={value}"], {})
    assert caught.value.field == f"--lam-{name}"


def test_a_request_cannot_set_what_belongs_to_the_process() -> None:
    default = server_settings({}).options
    for name in NAMES:
        with pytest.raises(OptionError, match=f"lam.{name}"):
            request_options(default, field={name: "1"})
