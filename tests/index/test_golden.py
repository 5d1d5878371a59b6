"""Bytes that were written once are read for ever: another layout needs another version."""

from __future__ import annotations

import numpy as np

from lam_vllm.index.segments import make_segment, read_segment
from lam_vllm.index.table import Table, read_table, table_bytes
from lam_vllm.memory import SeenWindow

EPS = 0.004
COUNTED = (np.arange(3)[:, None] * 37 + np.arange(33)[None, :] * 11) % 17 - 8.0
ROWS = (COUNTED / np.sqrt(np.square(COUNTED).sum(axis=1, keepdims=True))).astype(np.float32)
TABLE = Table(
    33,
    257,
    EPS,
    0.0229,
    77,
    (*(SeenWindow(place // 4, place % 4 or None, 1, place, place + 2, place) for place in range(257)),
     SeenWindow(99, None, 25, 3, 4, 7, 0.25)),
    (bytes(range(16)),),
    b"the tail",
)  # fmt: skip
SEGMENT = bytes.fromhex(
    """
    4c414d5301000300845fac863b9f273f46444c4c414d430102000003000000210000008b000000fca9f1d24d62703fd5aab4
    ee21d831e08700000004040425694bd27a29f45249f292e4c6518ca300000000000000000100000000000000694bd29629f4
    52e8f292e425518ca318000000000100000001000000010000004bd296a4f446e88d92f425e98ca318470100000000000000
    010000000100000050a1c4c4c848a14289899191c4c848a14289899191428512850a252646460a154a4c8c8c
    """
)
TABLE_BYTES = bytes.fromhex(
    """
    4c414d49010000002100000001010000020100004e020000080000004d00000000000000fca9f1d24d62703f174850fc1873
    973f000102030405060708090a0b0c0d0e0f789cedd563935c611445e19ed83627b66ddbb66ddbb66ddb7626b66ddb763259
    5d33a792ecfc84beb7eaa9eab7bf9fbd5cae7f3f2f1140041481446011440415c1447011428414a1446811468415e1447811
    41441491446411454415d144741143c414b1446c1147c415de229e882f1288842291482c9288a42299482e5288942295482d
    d288b4229d482f32888c2293c82cb288ac229bc82e72889c2297c82df288bc68e0faffee1d0e876771f7c6e5ffdb5a6f4db7
    765ba3adc5d65c6bab35d45a694db4f659e3ac65d62c6b93b7eb4f77ac2fd611eb8575c1f6df76def6dc76dbf6d976d8f6d6
    76d5f6d376d2f6301ff2a3000aa2100aa3088aa2188aa3044aa2144aa30ccaa21ccaa3022aa2122aa30aaaa21aaaa3066aa2
    166aa30eeaa21eeabbfc76b9211aa1319aa0299aa1395aa0255aa135daa02ddaa13d3aa0233aa133baa02bbaa13b7aa0277a
    a137faa02ffaa13f066020066130866028866138466024466134c6602cc6613c266022266132a6602aa6613a666026666136
    e6602ee6613e166021166131966029966139566025566135d6602dd6613d366023366133b6602bb6613b7660277661377cb0
    077bb10ffb710007710887710447710cc7710227710aa7710667710ee7710117710997710557710dd7710337710bb7710777
    710ff7f1000ff1088ff1044ff10ccff1022ff10aaff1066ff10eeff1011ff1099ff1055ff10ddff1033ff10bbe701fbffbee
    9dfb77eedfb97fcfbc7f2f04f0f2bb7dffbf9c3d70397be0ec8167ee81fbce7df9fede01e7edbc9db767bddd1f45f071381c
    1e2df76f2f22e975746865207461696c
    """
)


def test_a_segment_is_written_and_read_as_ever() -> None:
    made = make_segment(ROWS, EPS)
    assert made.data == SEGMENT
    read = read_segment(SEGMENT, 3, 33)
    assert read.rows.tobytes() == made.rows.tobytes()
    assert (np.linalg.norm(ROWS - read.rows.astype(np.float64), axis=1) <= read.errors).all()


def test_a_table_is_read_as_ever() -> None:
    assert read_table(TABLE_BYTES) == TABLE
    written = table_bytes(TABLE)  # how windows are packed is the library's, and so is how long that is
    assert (written[:20], written[24:68]) == (TABLE_BYTES[:20], TABLE_BYTES[24:68])
