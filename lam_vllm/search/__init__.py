"""Searches propose retained windows that may be near; only `verify` says which one is."""

from lam_vllm.search.base import Search
from lam_vllm.search.exhaustive import ExhaustiveSearch
from lam_vllm.search.verify import Verdict, verify, verify_near

__all__ = ["ExhaustiveSearch", "Search", "Verdict", "verify", "verify_near"]
