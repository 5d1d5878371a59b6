"""Encoder profiles: where a name is looked for, what a profile may say, and that one is written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lam_vllm.encoders.profile import EncoderProfile, read_profile, user_profiles, write_profile
from lam_vllm.errors import InputFileError

SERVER = {"server": "https://fleet:8000", "served_model": "bge", "tokenizer": "a/b", "fingerprint": "r1"}

words = st.text(min_size=1)
probabilities = st.floats(0, 1, exclude_min=True)
no_band: dict[str, Any] = {}
bands = st.just(no_band) | st.fixed_dictionaries({"guard_band": st.floats(0, 2), "guard_band_fingerprint": words})
searched = st.fixed_dictionaries({}, optional={"max_abs": probabilities, "basis": words.map(lambda word: f"/{word}")})
sources = st.one_of(
    st.fixed_dictionaries({"model": words}),
    st.fixed_dictionaries({"package": words, "folder": words}),
    st.fixed_dictionaries(
        {"served_model": words, "tokenizer": words, "fingerprint": words, "server": st.just(SERVER["server"])},
        optional={"api_key_variable": words, "window_tokens": st.integers(1, 2**40)},
    ),
)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's folder of profiles, still empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "lam-vllm" / "encoders"


@example(source={"model": "\x85"}, threshold_cos=1.0, band={}, search={})
@example(source={"model": "a"}, threshold_cos=1.0, band={}, search={"basis": "/a//b/."})
@given(source=sources, threshold_cos=probabilities, band=bands, search=searched)
def test_what_was_written_is_read_back(
    source: dict[str, Any],
    threshold_cos: float,
    band: dict[str, Any],
    search: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    profile = EncoderProfile.model_validate({**source, **band, **search, "threshold_cos": threshold_cos})
    path = tmp_path_factory.getbasetemp() / "profile.yaml"
    write_profile(profile, path)
    assert read_profile(str(path)) == profile


def test_a_written_profile_says_what_it_has_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    write_profile(EncoderProfile(model="a/b", guard_band=0.01, guard_band_fingerprint="5f"), path)
    assert path.read_text() == "model: a/b\nthreshold_cos: 0.95\nguard_band: 0.01\nguard_band_fingerprint: 5f\n"


@pytest.mark.usefixtures("home")
def test_a_shipped_name_is_the_shipped_profile() -> None:
    assert read_profile("bge-base") == EncoderProfile(model="BAAI/bge-base-en-v1.5", threshold_cos=0.95)


def test_the_users_profile_of_a_name_comes_before_the_shipped_one(home: Path) -> None:
    mine = read_profile("minilm").model_copy(update={"threshold_cos": 0.97})
    write_profile(mine, home / "minilm.yaml")
    assert read_profile("minilm") == mine
    assert read_profile("bge-base").model == "BAAI/bge-base-en-v1.5"


def test_a_path_is_never_looked_for_among_the_profiles(home: Path) -> None:
    write_profile(EncoderProfile(model="other"), home / "minilm.yaml")
    for name in ("./minilm", "sentence-transformers/minilm", "/models/minilm", "unheard-of"):
        assert read_profile(name) == EncoderProfile(model=name)


def test_a_profile_is_read_from_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(EncoderProfile(model="a/b", threshold_cos=0.9), tmp_path / "mine.yaml")
    monkeypatch.chdir(tmp_path)
    assert read_profile("mine.yaml") == read_profile(str(tmp_path / "mine.yaml"))
    assert read_profile("mine.yaml").threshold_cos == 0.9


def test_a_basis_lies_beside_its_profile_unless_its_name_is_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine.npy", str(tmp_path / "elsewhere.npy")):
        write_profile(EncoderProfile(model="a/b", basis=name), tmp_path / "mine.yaml")
        monkeypatch.chdir(tmp_path)
        assert read_profile("mine.yaml").basis == str(tmp_path / name)
        monkeypatch.chdir("/")
        assert read_profile(str(tmp_path / "mine.yaml")).basis == str(tmp_path / name)


@pytest.mark.usefixtures("home")
def test_the_shipped_profile_of_minilm_says_what_was_measured_of_it() -> None:
    profile = read_profile("minilm")
    assert profile.max_abs == 0.2631
    assert profile.basis is not None
    assert Path(profile.basis).is_file()


@pytest.mark.parametrize("stated", [None, "", "relative/folder"])
def test_without_an_absolute_configuration_folder_it_is_under_home(
    stated: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    if stated is not None:
        monkeypatch.setenv("XDG_CONFIG_HOME", stated)
    assert user_profiles() == tmp_path / ".config/lam-vllm/encoders"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no source": ({"threshold_cos": 0.9}, "exactly one of model, package and server"),
    "two sources": ({**SERVER, "model": "a/b"}, "exactly one of model, package and server"),
    "an unknown key": ({"model": "a/b", "threshold": 0.9}, "threshold: Extra inputs"),
    "a threshold of 0": ({"model": "a/b", "threshold_cos": 0}, "threshold_cos: .*greater than 0"),
    "below 0": ({"model": "a", "guard_band": -0.1, "guard_band_fingerprint": "x"}, "guard_band: .*equal to 0"),
    "no number": ({"model": "a", "guard_band": float("nan"), "guard_band_fingerprint": "x"}, "guard_band: "),
    "a band of nothing": ({"model": "a/b", "guard_band": 0.01}, "given together or not at all"),
    "no band": ({"model": "a/b", "guard_band_fingerprint": "x"}, "given together or not at all"),
    "no served model": ({**SERVER, "served_model": None}, "server needs served_model beside it"),
    "a lone server": ({"server": "http://x"}, "server needs served_model and tokenizer and fingerprint beside it"),
    "an empty fingerprint": ({**SERVER, "fingerprint": ""}, "fingerprint: .*at least 1 character"),
    "no size": ({"model": "a/b", "max_abs": 0.0}, "max_abs: .*greater than 0"),
    "no unit vector": ({"model": "a/b", "max_abs": 1.1}, "max_abs: .*less than or equal to 1"),
    "no name": ({"model": "a/b", "basis": ""}, "basis: .*at least 1 character"),
    "a bare number": ({**SERVER, "fingerprint": 1}, "fingerprint: .*valid string"),
    "no window": ({**SERVER, "window_tokens": 0}, "window_tokens: .*greater than or equal to 1"),
    "a model's key": ({"model": "a/b", "api_key_variable": "K"}, "api_key_variable: only allowed with server"),
    "no scheme": ({**SERVER, "server": "fleet:8000"}, "'fleet:8000' is not allowed; allowed: http://"),
    "no host": ({**SERVER, "server": "http:///v1"}, "'http:///v1' is not allowed"),
    "no port": ({**SERVER, "server": "http://[fleet"}, "Invalid IPv6"),
}


@pytest.mark.parametrize(("fields", "why"), BAD.values(), ids=BAD)
def test_a_bad_profile_names_its_file_and_its_fault(fields: dict[str, Any], why: str, home: Path) -> None:
    import yaml

    home.mkdir(parents=True)
    (home / "bad.yaml").write_text(yaml.safe_dump(fields))
    with pytest.raises(InputFileError, match=rf"bad\.yaml: not an encoder profile: .*{why}"):
        read_profile("bad")


@pytest.mark.parametrize("url", ["http://me:sesame@fleet", "http://fleet/?key=sesame", "http://fleet/#sesame"])
def test_a_url_that_may_hold_a_secret_is_refused_and_not_shown(url: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in {**SERVER, "server": url}.items()))
    with pytest.raises(InputFileError, match="a key belongs in api_key_variable") as caught:
        read_profile(str(path))
    assert "sesame" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "bytes.yaml").write_bytes(b"model: \xff")
    (tmp_path / "list.yaml").write_text("[a, b]")
    for name, why in {"none": "cannot be read: No such", "folder": "cannot be read: Is a", "bytes": "not YAML"}.items():
        with pytest.raises(InputFileError, match=rf"{name}\.yaml: {why}"):
            read_profile(str(tmp_path / f"{name}.yaml"))
    with pytest.raises(InputFileError, match=r"list\.yaml: not an encoder profile: "):
        read_profile(str(tmp_path / "list.yaml"))


def test_a_write_makes_its_folder_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "own.yaml"
    for threshold_cos in (0.9, 0.8):
        write_profile(EncoderProfile(model="m", threshold_cos=threshold_cos), path)
    assert list(path.parent.iterdir()) == [path]
    assert read_profile(str(path)).threshold_cos == 0.8


def test_a_write_that_fails_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken.yaml").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "taken.yaml", tmp_path / "file" / "own.yaml"):
        with pytest.raises(InputFileError, match=rf"{path.name}: cannot be written: "):
            write_profile(EncoderProfile(model="m"), path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken.yaml"]


def test_a_profile_is_only_written_where_it_can_be_read_again(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"own\.yml: a profile's file name ends in \.yaml"):
        write_profile(EncoderProfile(model="m"), tmp_path / "own.yml")
