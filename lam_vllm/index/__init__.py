"""The retained windows of a conversation prefix, compressed: kept, and searched by meaning."""

from lam_vllm.index.complete import Completer
from lam_vllm.index.gaps import prefix_windows
from lam_vllm.index.indexer import Indexer
from lam_vllm.index.nouns import Dropped, Found, Gap, Hit, PrefixWindows
from lam_vllm.index.prefix_index import EncodedAs, PrefixIndex, build_index, index_eps
from lam_vllm.index.search import nearest, search
from lam_vllm.index.shelf import IndexShelf

__all__ = [
    "Completer",
    "Dropped",
    "EncodedAs",
    "Found",
    "Gap",
    "Hit",
    "IndexShelf",
    "Indexer",
    "PrefixIndex",
    "PrefixWindows",
    "build_index",
    "index_eps",
    "nearest",
    "prefix_windows",
    "search",
]
