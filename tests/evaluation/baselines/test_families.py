"""The table of families."""

from __future__ import annotations

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines import Inputs, WindowEmbeddings, family_names, make_family
from tests.core.chats import BagOfWords
from tests.evaluation.baselines.hand_made import count_words, run_of


def full_inputs() -> Inputs:
    encoder = BagOfWords()
    return Inputs(count_words, [run_of("a")], encoder, WindowEmbeddings(encoder))


@pytest.mark.parametrize(
    ("name", "count", "first", "last"),
    [
        ("none", 1, ("", 0), ("", 0)),
        ("exact", 2, ("", 0), ("directory aliases", 0)),
        ("span_folding", 3, ("real references", 0), ("own text too", 0)),
        ("paper", 12, ("t=0.8", 0), ("t=0.999", 0)),
        ("l1", 12, ("t=0.8", 0), ("t=0.999", 0)),
        ("masking", 5, ("k=3", 0), ("k=50", 0)),
        ("semdedup", 50, ("t=0.9", 0), ("t=0.9999", 4)),
        ("semdedup_global", 50, ("t=0.9", 0), ("t=0.9999", 4)),
        ("minhash", 6, ("j=0.5", 0), ("j=0.95", 0)),
    ],
)
def test_a_family_has_a_method_for_each_setting_and_seed(
    name: str, count: int, first: tuple[str, int], last: tuple[str, int]
) -> None:
    methods = make_family(name, full_inputs()).methods
    assert len(methods) == count
    assert {method.name for method in methods} == {name}
    assert (methods[0].setting, methods[0].seed) == first
    assert (methods[-1].setting, methods[-1].seed) == last


def test_settings_may_be_chosen() -> None:
    assert [method.setting for method in make_family("masking", full_inputs(), (4, 2)).methods] == ["k=4", "k=2"]


@pytest.mark.parametrize("name", ["guarded", "paper", "l1", "components", "semdedup", "semdedup_global", "minhash"])
def test_families_that_need_an_encoder_say_so(name: str) -> None:
    family = make_family(name, Inputs(count_words))
    assert (family.methods, family.reason) == ((), "no encoder was given")


def test_summaries_need_a_server() -> None:
    assert make_family("summaries", full_inputs()).reason == "no server for summaries was named"


@pytest.mark.parametrize("name", ["llmlingua2_xlm", "llmlingua2_bert"])
def test_absent_weights_are_a_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    absent = Inputs(count_words, llmlingua_xlm_weights="nobody/has-xlm", llmlingua_bert_weights="nobody/has-bert")
    family = make_family(name, absent)
    assert family.methods == ()
    assert family.reason.startswith(f"no weights 'nobody/has-{name.removeprefix('llmlingua2_')}'")


def test_an_unknown_family_is_named_with_those_there_are() -> None:
    with pytest.raises(OptionError, match="method: 'lossy' is not allowed; allowed: none, l0, exact"):
        make_family("lossy", full_inputs())


def test_every_family_has_a_name_of_its_own() -> None:
    assert len(set(family_names())) == len(family_names()) == 15
