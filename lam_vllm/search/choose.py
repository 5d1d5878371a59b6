"""The search that a config names."""

from __future__ import annotations

from lam_vllm.config import NO_BASIS, SearchName
from lam_vllm.errors import OptionError
from lam_vllm.ops.arrays import HOST, Arrays
from lam_vllm.search.banded import BandedSearch
from lam_vllm.search.base import Search
from lam_vllm.search.basis import read_basis
from lam_vllm.search.exhaustive import ExhaustiveSearch
from lam_vllm.search.pruned import PrunedSearch


def open_search(name: SearchName, basis: str | None, dimension: int, arrays: Arrays = HOST) -> Search:
    """The search called `name` for embeddings of this dimension; `basis` is the file that the encoder's profile names.

    `arrays` quantises, where anything is. It has seen no rows: each matrix gets a fork of its own.

    Raises:
        OptionError: it is pruned, and there is no basis.
        InputFileError: it is pruned, and the file is no basis of this dimension.
    """
    if name == "banded":
        return BandedSearch(dimension, arrays=arrays)
    if name == "exhaustive":
        return ExhaustiveSearch()
    if basis is None:
        raise OptionError("search", name, NO_BASIS)
    return PrunedSearch(read_basis(basis, dimension))
