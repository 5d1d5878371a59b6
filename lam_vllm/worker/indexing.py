"""The indexes of a worker: where they are kept, and what a search of them finds."""

from __future__ import annotations

from lam_vllm.compactors import Compactors
from lam_vllm.encoders.base import Encoder
from lam_vllm.index import Completer, EncodedAs, Found, Indexer, IndexShelf, search
from lam_vllm.stores import OnError, StoreSettings, open_rows
from lam_vllm.worker.jobs import Search, Setup


def open_indexer(setup: Setup, encoder: Encoder, on_error: OnError) -> Indexer:
    """Takes what the encoder's compactions leave, into the store of the setup or, where none is named, this memory.

    Raises:
        as `open_rows`.
    """
    rows = open_rows(setup.store or StoreSettings(), "index", setup.key, on_error)
    shelf = IndexShelf(rows, setup.key, EncodedAs.of(encoder), on_error)
    return Indexer(shelf, Completer(encoder), on_error)


def find(job: Search, compactors: Compactors, indexer: Indexer, encoder: Encoder) -> Found | None:
    """What the job asks for; None where no index is kept under its digest.

    Raises:
        OptionError: messages are to be searched under the profile `exact`.
        StoreError: the store cannot be read now.
        EncoderError: the encoder failed.
    """
    if job.messages is not None:
        return compactors.get(job.config).search(job.messages, job.query, job.k, salt=job.salt)
    index = indexer.get(job.salt, job.prefix_digest or "")
    return None if index is None else search(index, encoder, job.query, job.k)
