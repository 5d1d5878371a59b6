"""Which search an option's name stands for, and where it is refused."""

from __future__ import annotations

import pytest

from lam_vllm.config import CompactorConfig, load_config, make_config, resolved_config
from lam_vllm.encoders.profile import read_profile
from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.resources import resource
from lam_vllm.search import BandedSearch, ExhaustiveSearch, PrunedSearch, open_search

BASIS = read_profile("minilm").basis


def test_each_name_is_a_search_that_has_seen_nothing() -> None:
    names = {"exhaustive": ExhaustiveSearch, "banded": BandedSearch, "pruned": PrunedSearch}
    for name, kind in names.items():
        search = open_search(make_config({"search": name}).search, BASIS, 384)
        assert isinstance(search, kind)
        assert search.nbytes == 0


def test_every_window_is_looked_at_unless_something_else_is_asked_for() -> None:
    assert CompactorConfig().search == "exhaustive"
    assert load_config(resource("configs") / "paper.yaml").search == "banded"


def test_a_search_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(OptionError, match="search: 'hnsw' is not allowed; allowed: exhaustive, banded, pruned"):
        make_config({"search": "hnsw"})


def test_a_pruned_search_without_a_basis_is_refused_by_name() -> None:
    pruned = CompactorConfig(search="pruned", profile="paper")
    words = "search: 'pruned' is not allowed; allowed: exhaustive, banded; pruned needs an encoder whose profile"
    with pytest.raises(OptionError, match=words):
        open_search("pruned", None, 384)
    with pytest.raises(OptionError, match=words):
        resolved_config(pruned, 0.95)
    assert resolved_config(pruned, 0.95, has_basis=True).search == "pruned"
    for search in ("exhaustive", "banded"):
        assert resolved_config(make_config({"search": search}), 0.95).search == search
    assert resolved_config(pruned.model_copy(update={"profile": "exact"}), 0.95).profile == "exact"


def test_a_basis_of_another_encoder_is_refused_by_name() -> None:
    with pytest.raises(InputFileError, match=r"minilm\.npy: not a basis of this encoder: 64 rows of 384 numbers"):
        open_search("pruned", BASIS, 768)


def test_the_search_is_part_of_what_names_an_output() -> None:
    digests = {make_config({"search": name}).digest() for name in ("exhaustive", "banded", "pruned")}
    assert len(digests) == 3
