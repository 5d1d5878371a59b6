"""Searches propose retained windows that may be near; only `verify` says which one is."""

from lam_vllm.search.banded import BandedSearch
from lam_vllm.search.base import Search
from lam_vllm.search.choose import open_search
from lam_vllm.search.exhaustive import ExhaustiveSearch
from lam_vllm.search.pruned import PrunedSearch
from lam_vllm.search.verify import Verdict, verify, verify_near

__all__ = [
    "BandedSearch",
    "ExhaustiveSearch",
    "PrunedSearch",
    "Search",
    "Verdict",
    "open_search",
    "verify",
    "verify_near",
]
