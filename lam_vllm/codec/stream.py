"""Matrices to streams and back."""

from __future__ import annotations

import numpy as np

from lam_vllm.codec.bounded import Values, checked_eps, inverse_of, step_of, tolerance_of
from lam_vllm.codec.dense import dense_body, dense_rows
from lam_vllm.codec.error import CodecError
from lam_vllm.codec.fixed import Blocks, body_of, fixed_body, fixed_rows
from lam_vllm.codec.raw import raw_body, raw_rows
from lam_vllm.codec.wire import Mode, Stream, check_shape, opened, sealed
from lam_vllm.ops.launches import Bound
from lam_vllm.ops.on_device import DeviceArrays

_BODIES = {"fixed": fixed_body, "dense": dense_body}


def encode(rows: Values, eps: float, mode: Mode = "dense") -> bytes:
    """One self-contained stream of a (N, D) float32 matrix, a function of these three and of nothing else.

    Every finite value decodes to one no further than `eps` away, in float64 with no slack, or to itself; NaNs and
    infinities decode to their own bits. Equal rows decode to equal rows. `fixed` is what a GPU writes too; `dense` is
    smaller: it predicts a row from an earlier one of the same stream.

    Raises:
        CodecError: `rows` is not a float32 matrix of an allowed shape.
        CodecError: `eps` is not an allowed number.
        CodecError: `mode` is neither `fixed` nor `dense`.
    """
    _check(rows)
    eps = checked_eps(eps)
    if mode not in _BODIES:
        raise CodecError("mode", mode, " or ".join(_BODIES))
    return sealed(mode, len(rows), rows.shape[1], eps, _BODIES[mode](rows, eps))


def encode_on(device: DeviceArrays, rows: Values, eps: float) -> bytes:
    """The stream of `encode(rows, eps, "fixed")`, whose blocks are made on a device: the same bytes.

    Raises:
        CodecError: as `encode`.
    """
    _check(rows)
    eps = checked_eps(eps)
    made = device.encode_fixed(rows, Bound(step_of(eps), inverse_of(eps), tolerance_of(eps)))
    return sealed("fixed", len(rows), rows.shape[1], eps, body_of(Blocks(made.widths, made.words)))


def encode_raw(rows: Values) -> bytes:
    """One self-contained stream of a (N, D) float32 matrix, which decodes to the same bits.

    Raises:
        CodecError: `rows` is not a float32 matrix of an allowed shape.
    """
    _check(rows)
    return sealed("raw", len(rows), rows.shape[1], 0.0, raw_body(rows))


def decode(stream: Stream) -> Values:
    """The (N, D) float32 matrix of a stream of any mode, in memory of its own.

    Raises:
        CodecError: these bytes are no stream. Nothing is allocated that the length of the stream does not allow.
    """
    header, body = opened(stream)
    if header.mode == "raw":
        return raw_rows(body, header.rows, header.dimension)
    rows_of = fixed_rows if header.mode == "fixed" else dense_rows
    return rows_of(body, header.rows, header.dimension, header.eps)


def _check(rows: object) -> None:
    if not isinstance(rows, np.ndarray):
        raise CodecError("rows", type(rows).__name__, "a numpy array")
    if rows.ndim != 2 or rows.dtype != np.float32:
        raise CodecError("rows", f"shape {rows.shape} of {rows.dtype}", "2 axes of float32")
    check_shape(*rows.shape)
