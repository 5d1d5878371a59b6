"""Ways to write a matrix of embeddings: this project's, libraries' under the same bound, and some without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec import decode, encode, encode_raw
from lam_vllm.codec.bounded import Values, quantise, reconstruct
from lam_vllm.codec.wire import Mode

Shape = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Way:
    """`write` makes bytes of rows under a bound, `read` rows of the bytes; not `bounded`: whatever the bound."""

    name: str
    write: Callable[[Values, float], bytes]
    read: Callable[[bytes, Shape, float], Values]
    bounded: bool = True


def ways() -> list[Way]:
    """All of them, in the order of the table."""
    return [
        _own("fixed"),
        _own("dense"),
        _zfp("zfpy, 2-D", lambda rows: rows),
        _zfp("zfpy, 1-D", lambda rows: rows.reshape(-1)),
        _sz("pysz (SZ3), no prediction", "NOPRED"),
        _sz("pysz (SZ3), Lorenzo", "LORENZO_REG"),
        _sz("pysz (SZ3), interpolation", "INTERP"),
        _zstd("zstd 3 of the quanta", 3),
        _zstd("zstd 19 of the quanta", 19),
        _blosc("blosc2 of the quanta, bitshuffle, zstd 5"),
        Way("int8, scale a row", _int8, _int8_rows, bounded=False),
        Way("int4, scale a row", _int4, _int4_rows, bounded=False),
        Way("sign", _sign, _sign_rows, bounded=False),
        Way("raw (lossless, zlib)", lambda rows, _: encode_raw(rows), lambda data, _, __: decode(data), bounded=False),
    ]


def _own(mode: Mode) -> Way:
    return Way(mode, lambda rows, eps: encode(rows, eps, mode), lambda data, _, __: decode(data))


def _zfp(name: str, shaped: Callable[[Values], Values]) -> Way:
    import zfpy

    def read(data: bytes, shape: Shape, _: float) -> Values:
        values: Values = zfpy.decompress_numpy(data)
        return values.reshape(shape)

    return Way(name, lambda rows, eps: zfpy.compress_numpy(shaped(rows), tolerance=eps), read)


def _sz(name: str, algorithm: str) -> Way:
    from pysz import sz, szAlgorithm, szConfig, szErrorBoundMode

    def configured(shape: Shape, eps: float) -> Any:
        config = szConfig(*shape)
        config.errorBoundMode, config.absErrorBound = szErrorBoundMode.ABS, eps
        config.cmprAlgo = getattr(szAlgorithm, algorithm)
        return config

    def write(rows: Values, eps: float) -> bytes:
        packed, _ = sz.compress(rows, configured((len(rows), rows.shape[1]), eps))
        data: bytes = packed.tobytes()
        return data

    def read(data: bytes, shape: Shape, _: float) -> Values:
        rows, _config = sz.decompress(np.frombuffer(data, np.uint8), np.float32, shape)
        found: Values = rows
        return found

    return Way(name, write, read)


def _zstd(name: str, level: int) -> Way:
    import zstandard

    writer, reader = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    return _of_quanta(name, lambda quanta: writer.compress(quanta.tobytes()), reader.decompress)


def _blosc(name: str) -> Way:
    import blosc2

    options: Any = {"clevel": 5, "codec": blosc2.Codec.ZSTD, "filters": [blosc2.Filter.BITSHUFFLE], "nthreads": 1}

    def write(quanta: NDArray[Any]) -> bytes:
        packed: bytes = blosc2.compress2(quanta, typesize=quanta.itemsize, **options)
        return packed

    return _of_quanta(name, write, lambda data: blosc2.decompress2(data, nthreads=1))


def _of_quanta(name: str, write: Callable[[NDArray[Any]], bytes], read: Callable[[bytes], bytes]) -> Way:
    """A byte codec over the quanta of `fixed`, one byte each where they fit; the bound is checked, nothing escapes."""

    def write_rows(rows: Values, eps: float) -> bytes:
        found = quantise(rows, eps)
        if not found.kept.all():
            raise SystemExit(f"{name}: a value would miss the bound; this comparison has no escape")
        small = np.abs(found.quanta).max(initial=0) <= np.iinfo(np.int8).max
        return write(found.quanta.astype(np.int8 if small else np.int16))

    def read_rows(data: bytes, shape: Shape, eps: float) -> Values:
        quanta = read(data)
        kind = np.int8 if len(quanta) == shape[0] * shape[1] else np.int16
        return reconstruct(np.frombuffer(quanta, kind).astype(np.int32), eps).reshape(shape)

    return Way(name, write_rows, read_rows)


def _int8(rows: Values, _: float) -> bytes:
    scales: Values = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    whole: NDArray[np.int8] = np.rint(rows / scales).astype(np.int8)
    return scales.tobytes() + whole.tobytes()


def _int8_rows(data: bytes, shape: Shape, _: float) -> Values:
    scales = np.frombuffer(data, np.float32, shape[0])[:, None]
    return np.frombuffer(data, np.int8, offset=scales.nbytes).reshape(shape) * scales


def _int4(rows: Values, _: float) -> bytes:
    scales: Values = np.abs(rows).max(axis=1, keepdims=True) / np.float32(7)
    nibbles: NDArray[np.uint8] = (np.rint(rows / scales) + 8).astype(np.uint8).reshape(-1, 2)
    pairs = nibbles[:, 0] | nibbles[:, 1] << 4
    return scales.tobytes() + pairs.tobytes()


def _int4_rows(data: bytes, shape: Shape, _: float) -> Values:
    scales = np.frombuffer(data, np.float32, shape[0])[:, None]
    pairs = np.frombuffer(data, np.uint8, offset=scales.nbytes)
    nibbles = np.stack([pairs & 15, pairs >> 4], axis=1).reshape(shape)
    return (nibbles.astype(np.float32) - np.float32(8)) * scales


def _sign(rows: Values, _: float) -> bytes:
    return np.packbits(rows >= 0).tobytes()


def _sign_rows(data: bytes, shape: Shape, _: float) -> Values:
    ones = np.unpackbits(np.frombuffer(data, np.uint8)).reshape(shape).astype(np.float32)
    return (2 * ones - 1) / np.float32(np.sqrt(shape[1]))
