"""What a search answers, as JSON has it: on the wire, and printed by the command. It needs no web framework."""

from __future__ import annotations

from pathlib import PurePath

from pydantic import BaseModel

from lam_vllm.index import Found, Hit

MOST_QUERY_CHARACTERS = 8_192
"""More than the window of any encoder holds: of a long query the first window counts."""


class FoundWindow(BaseModel):
    """Characters `start:end` of a text of tool result number `result`, counted from 1, in message `message`.

    `part` is the index in a parts list, null where the content is a string.
    """

    message: int
    part: int | None
    result: int
    start: int
    end: int


class DroppedWindow(FoundWindow):
    """A window that a hit stands for; `distance` bounds the l2 distance of their embeddings."""

    distance: float


class Certificate(BaseModel):
    """How far a score may be off, `total` being the sum.

    `delta_hat` is the largest distance of a dropped window, `codec_error` what compressing changed, `embedding_error`
    how far embeddings made quickly may lie from canonical ones: measured with a safety factor, not proved.
    """

    delta_hat: float
    codec_error: float
    embedding_error: float
    rounding: float
    total: float


class SearchHit(FoundWindow):
    """A window that is like the query. `text` is there where the search was by messages.

    `score` is the cosine of the query and what is kept of the window. What the window itself and any of the `dropped`
    would have scored, embedded canonically, differs from it by `certificate.total` at most.
    """

    score: float
    text: str | None
    certificate: Certificate
    dropped: list[DroppedWindow]


class SearchAnswer(BaseModel):
    """The hits, best first, and what was searched: `windows` of the prefix, `missing` of them kept no longer.

    `uncovered_characters` of the tool output that the prompt holds are in no window, since they came after the cap of
    windows. `eps` is the largest error of a coordinate of a kept embedding.
    """

    hits: list[SearchHit]
    windows: int
    missing: int
    prefix_digest: str
    encoder: str
    eps: float
    uncovered_characters: int


def answer_of(found: Found) -> SearchAnswer:
    """The answer that tells what was found."""
    return SearchAnswer(
        hits=[_hit(hit) for hit in found.hits],
        windows=found.windows,
        missing=found.missing,
        prefix_digest=found.prefix_digest,
        encoder=PurePath(found.encoder).name,  # where its profile lies is nobody else's business
        eps=found.eps,
        uncovered_characters=found.uncovered_characters,
    )


def _hit(hit: Hit) -> SearchHit:
    return SearchHit(
        message=hit.message,
        part=hit.part,
        result=hit.result,
        start=hit.start,
        end=hit.end,
        score=hit.score,
        text=hit.text,
        certificate=Certificate(
            delta_hat=hit.delta_hat,
            codec_error=hit.codec_error,
            embedding_error=hit.embedding_error,
            rounding=hit.rounding,
            total=hit.total,
        ),
        dropped=[DroppedWindow(**each._asdict()) for each in hit.dropped],
    )
