"""The format read and written number by number, in Python: what the vectorised code is held to."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from lam_vllm.codec.bounded import Values

HEADER = struct.Struct("<4sBBHIIIdQ")
BLOCK, ESCAPED, MOST_QUANTUM = 32, 255, 2**22 - 1


def fp32(number: float) -> float:
    """The nearest fp32 number, infinite where there is none."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def quantum(value: float, eps: float) -> int | None:
    """The quantum of a value, or None if it has to be kept as it is."""
    step = fp32(2 * eps * (1 - 2**-16))
    scaled = fp32(value * fp32(1 / step))
    if not abs(scaled) <= MOST_QUANTUM:
        return None
    whole = round(scaled)
    return whole if abs(fp32(value - fp32(whole * step))) <= eps * (1 - 2**-22) else None


def fixed_body(rows: Values, eps: float) -> bytes:
    widths, words = bytearray(), bytearray()
    for row in rows:
        for start in range(0, len(row), BLOCK):
            values = row[start : start + BLOCK]
            quanta = [quantum(float(value), eps) for value in values]
            if None in quanta:
                widths.append(ESCAPED)
                words += values.astype("<f4").tobytes() + bytes(4 * (BLOCK - len(values)))
                continue
            numbers = [2 * whole if whole >= 0 else -2 * whole - 1 for whole in quanta if whole is not None]
            width = max(numbers).bit_length()
            widths.append(width)
            for bit in range(width):
                words += sum((number >> bit & 1) << place for place, number in enumerate(numbers)).to_bytes(4, "little")
    return bytes(widths) + bytes(-len(widths) % 4) + bytes(words)


class Reader:
    """Bytes from front to end, and what is left as bits."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        self._at += size
        assert self._at <= len(self._data)
        return self._data[self._at - size : self._at]

    def word(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def bits(self) -> Iterator[int]:
        return (byte >> bit & 1 for byte in self._data[self._at :] for bit in range(8))


def decoded(stream: bytes) -> Values:
    """The matrix of a stream in mode `fixed` or `dense`."""
    _, _, mode, _, count, dimension, _, eps, _ = HEADER.unpack_from(stream)
    body = Reader(stream[HEADER.size :])
    step = np.float32(2 * eps * (1 - 2**-16))
    if mode == 1:
        return _fixed_rows(body, count, dimension, step)
    groups = []
    for start in range(0, count, 256):
        group = Reader(body.take(body.word()))
        groups.append(_group(group, min(256, count - start), dimension, step))
    return np.concatenate(groups) if groups else np.empty((0, dimension), np.float32)


def _fixed_rows(body: Reader, count: int, dimension: int, step: np.float32) -> Values:
    blocks = -(-dimension // BLOCK)
    widths = body.take(count * blocks)
    body.take(-len(widths) % 4)
    rows = [[_block(body, width, step) for width in widths[row * blocks : (row + 1) * blocks]] for row in range(count)]
    flat = [np.concatenate([values for values, _ in row])[:dimension] for row in rows]
    return np.array(flat, np.float32).reshape(count, dimension)


def _block(body: Reader, width: int, step: np.float32) -> tuple[Values, list[int]]:
    """The values of a block, and its quanta, which count as zeros where it is escaped."""
    if width == ESCAPED:
        return np.frombuffer(body.take(4 * BLOCK), "<f4").astype(np.float32), [0] * BLOCK
    quanta = [_signed(number) for number in _planes(body, width)]
    return np.array(quanta, np.float32) * step, quanta


def _planes(body: Reader, width: int) -> list[int]:
    words = [body.word() for _ in range(width)]
    return [sum((word >> place & 1) << bit for bit, word in enumerate(words)) for place in range(BLOCK)]


def _signed(number: int) -> int:
    return -(number >> 1) - 1 if number & 1 else number >> 1


def _group(group: Reader, count: int, dimension: int, step: np.float32) -> Values:
    blocks = -(-dimension // BLOCK)
    heads = group.take(count)
    with_parent = [row for row, head in enumerate(heads) if 128 <= head < 255]
    parents = dict(zip(with_parent, group.take(len(with_parent)), strict=True))
    scales = dict(zip(with_parent, struct.unpack(f"{len(with_parent)}b", group.take(len(with_parent))), strict=True))
    widths = {row: group.take(blocks) for row, head in enumerate(heads) if head == 255}
    values, quanta = {}, {}
    for row, head in enumerate(heads):
        if head == 255:
            read = [_block(group, width, step) for width in widths[row]]
            values[row] = np.concatenate([part for part, _ in read])[:dimension]
            quanta[row] = [whole for _, part in read for whole in part][:dimension]
        else:
            quanta[row] = [number for _ in range(blocks) for number in _planes(group, head & 127)][:dimension]
    bits = group.bits()
    for row, head in enumerate(heads):
        if head != 255:
            numbers = [low + (_zeros(bits) << (head & 127)) for low in quanta[row]]
            residuals = [_signed(number) for number in numbers]
            before = quanta[parents[row]] if row in parents else [0] * dimension
            scale = scales.get(row, 0)
            quanta[row] = [rest + (scale * whole + 8 >> 4) for rest, whole in zip(residuals, before, strict=True)]
            values[row] = np.array(quanta[row], np.float32) * step
    return np.array([values[row] for row in range(count)], np.float32).reshape(count, dimension)


def _zeros(bits: Iterator[int]) -> int:
    """Zeros before the next one."""
    count = 0
    while not next(bits):
        count += 1
    return count
