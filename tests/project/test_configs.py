"""The shipped configs: each can be loaded, and the documented defaults are the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lam_vllm import CompactorConfig, InputFileError, OptionError, load_config, make_config
from lam_vllm.resources import resource

SHIPPED = sorted(resource("configs").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.name))
def test_a_shipped_config_loads(path: Path) -> None:
    assert load_config(path) == make_config(yaml.safe_load(path.read_text()))


def test_the_default_config_spells_out_every_default() -> None:
    values = yaml.safe_load((resource("configs") / "default.yaml").read_text())
    assert set(values) == set(CompactorConfig.model_fields)
    assert make_config(values) == CompactorConfig()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"profile": "exactly"}, "profile"),
        ({"algorithm": 2}, "algorithm"),
        ({"threshold_cos": 0}, "threshold_cos"),
        ({"threshold_cos": "0.9"}, "threshold_cos"),
        ({"observations": "user"}, "observations"),
        ({"exclude_tools": "bash"}, "exclude_tools"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": True}, "min_tokens"),
        ({"max_reference_distance_tokens": 0}, "max_reference_distance_tokens"),
        ({"max_observation_bytes": 0}, "max_observation_bytes"),
        ({"max_windows": -1}, "max_windows"),
        ({"keep_last": 3}, "keep_last"),
    ],
    ids=lambda value: str(value),
)
def test_a_bad_option_is_an_error_that_names_field_value_and_what_is_allowed(
    values: dict[str, object], field: str
) -> None:
    with pytest.raises(OptionError) as caught:
        make_config(values)
    assert caught.value.field == field
    assert repr(values[field]) in str(caught.value)
    assert caught.value.allowed in str(caught.value)


@pytest.mark.parametrize("text", ["- a\n- list", "{", "\x00"], ids=["list", "broken", "binary"])
def test_a_file_that_is_not_a_mapping_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(InputFileError, match="config.yaml"):
        load_config(path)
    with pytest.raises(InputFileError, match="missing.yaml"):
        load_config(tmp_path / "missing.yaml")
