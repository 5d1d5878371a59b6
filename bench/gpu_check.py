"""Whether a GPU gives the bytes of numpy in every operation, and how close each kernel comes to copying memory.

Needs a GPU and the extra `cuda`; without them it says so and ends with code 2. Speeds are those of whole calls between
two events, the median of `ROUNDS`, beside a device-to-device copy in the same run. The bytes that count are named for
each: what an operation cannot do without, read once and written once. Any byte that differs ends in code 1. Prints
tables, and the same figures as one line of JSON.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lam_vllm.codec.bounded import Values, default_eps, inverse_of, step_of, tolerance_of
from lam_vllm.codec.fixed import Blocks, decode_blocks, encode_blocks
from lam_vllm.errors import MissingExtraError
from lam_vllm.ops import cuda, launches, reference
from lam_vllm.ops.launches import Bound, Device

STREAMS = Path(__file__).parents[1] / "tests/data/codec/streams.json"
HOSTILE = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-42, 1.1754944e-38, 3.4028235e38, 2.0**24)
SIGMA = 1 / np.sqrt(384)
BAND_EPS, BAND_WIDTH = float(0.2 * SIGMA), 4
MOST_ROWS, DIMENSION = 2_000_000, 384
ROUNDS = 20
TARGETS = {"quantise and digest": 0.8, "encode": 0.5, "decode": 0.5, "verify": 0.7}
Move = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Speed:
    """Median seconds of a call, the bytes that count, and what they are."""

    name: str
    seconds: float
    counted_bytes: int
    what_counts: str

    @property
    def bytes_per_second(self) -> float:
        return self.counted_bytes / self.seconds


def matrices(large: int) -> Iterator[tuple[str, Values]]:
    """Real rows, rows like embeddings at several shapes (one of `large` rows), and the same with hostile values."""
    for kept in json.loads(STREAMS.read_text(encoding="ascii")):
        yield kept["name"], np.frombuffer(base64.b64decode(kept["rows"]), "<f4").reshape(kept["shape"])
    random = np.random.default_rng(8)
    for shape in ((1, 1), (33, 100), (70, 33), (40, 384), (9, 1024), (large, 384)):
        rows = (random.standard_normal(shape) * SIGMA).astype(np.float32)
        yield f"made {shape}", rows
        hostile = rows.copy()
        places = random.integers(0, rows.size, rows.size // 200 + 1)
        hostile.reshape(-1)[places] = random.choice(np.array(HOSTILE, np.float32), len(places))
        yield f"hostile {shape}", hostile


def bound_of(eps: float) -> Bound:
    return Bound(step_of(eps), inverse_of(eps), tolerance_of(eps))


def same_codec(device: Device, there: Move, here: Move, rows: Values, eps: float) -> bool:
    expected = encode_blocks(rows, eps)
    found = launches.encode_fixed(device, there(rows), bound_of(eps))
    widths, words = here(found.widths), here(found.words)
    decoded = here(launches.decode_fixed(device, found.widths, found.words, rows.shape[1], step_of(eps)))
    known = decode_blocks(Blocks(expected.widths, expected.words), rows.shape[1], eps)
    same = widths.tobytes() == expected.widths.tobytes() and words.tobytes() == expected.words.tobytes()
    return same and bool(decoded.tobytes() == known.tobytes())


def same_bands(device: Device, there: Move, here: Move, rows: Values) -> bool:
    """The digests and quanta; or, where numpy refuses a value, that it is refused."""
    try:
        digests, quanta = reference.band_digests(rows, BAND_EPS, BAND_WIDTH), reference.band_quanta(rows, BAND_EPS)
    except ValueError:
        try:
            launches.quantize_bands(device, there(rows), BAND_EPS, BAND_WIDTH, with_quanta=False)
        except ValueError:
            return True
        return False
    found = launches.quantize_bands(device, there(rows), BAND_EPS, BAND_WIDTH, with_quanta=True)
    return bool((here(found.digests) == digests).all() and (here(found.quanta) == quanta).all())


def same_distances(device: Device, there: Move, here: Move, rows: Values) -> bool:
    """Bit for bit; a NaN is a NaN, whatever its payload."""
    query = np.linspace(-1, 1, rows.shape[1], dtype=np.float32)
    with np.errstate(invalid="ignore"):
        expected = reference.l2_distances(rows, query)
    found = here(launches.l2_distances(device, there(rows), there(query)))
    return bool(((found.view(np.uint64) == expected.view(np.uint64)) | (np.isnan(found) & np.isnan(expected))).all())


def parity(device: Device, there: Move, here: Move, large: int) -> dict[str, bool]:
    """For each operation and matrix, whether the device gives what numpy gives."""
    found = {}
    for name, rows in matrices(large):
        for eps in (default_eps(0.2631), 2.6e-5):
            found[f"codec, {name}, eps {eps:g}"] = same_codec(device, there, here, rows, eps)
        found[f"bands, {name}"] = same_bands(device, there, here, rows)
        found[f"distances, {name}"] = same_distances(device, there, here, rows)
    return found


def seconds_of(cupy: Any, call: Callable[[], object]) -> float:
    call()  # compiles, and fills the memory pool
    times = []
    for _ in range(ROUNDS):
        begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
        begun.record()
        call()
        ended.record()
        ended.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begun, ended) / 1000)
    return float(median(times))


def speeds(cupy: Any, device: Device) -> list[Speed]:
    free, _ = cupy.cuda.runtime.memGetInfo()
    count = min(MOST_ROWS, free // (6 * 4 * DIMENSION))
    rows = cupy.random.standard_normal((count, DIMENSION), dtype=cupy.float32) * np.float32(SIGMA)
    bound = bound_of(default_eps(0.2631))
    query, target = rows[0].copy(), cupy.empty_like(rows)

    def copied() -> None:
        target.data.copy_from_device_async(rows.data, rows.nbytes, cupy.cuda.get_current_stream())

    def digested() -> object:
        return launches.quantize_bands(device, rows, BAND_EPS, BAND_WIDTH, with_quanta=False)

    blocks = launches.encode_fixed(device, rows, bound)
    packed = blocks.widths.nbytes + blocks.words.nbytes
    digests = 8 * count * DIMENSION // BAND_WIDTH
    calls: list[tuple[str, Callable[[], object], int, str]] = [
        ("copy", copied, 2 * rows.nbytes, "each value read and written"),
        ("quantise and digest", digested, rows.nbytes + digests, "each value read, each digest written"),
        (
            "encode",
            lambda: launches.encode_fixed(device, rows, bound),
            rows.nbytes + packed,
            "values read, body written",
        ),
        (
            "decode",
            lambda: launches.decode_fixed(device, blocks.widths, blocks.words, DIMENSION, bound.step),
            rows.nbytes + packed,
            "body read, values written",
        ),
        (
            "verify",
            lambda: launches.l2_distances(device, rows, query),
            rows.nbytes + 8 * count,
            "each value read, each distance written",
        ),
    ]
    return [Speed(name, seconds_of(cupy, call), size, what) for name, call, size, what in calls]


def print_speeds(found: list[Speed]) -> dict[str, float]:
    """Each kernel's share of the speed of the copy."""
    copy = found[0].bytes_per_second
    shares = {speed.name: speed.bytes_per_second / copy for speed in found[1:]}
    for speed in found:
        rate = f"{speed.name:20} {speed.bytes_per_second / 1e9:8.0f} GB/s"
        share = f"{shares[speed.name]:.2f} of copy, target {TARGETS[speed.name]}" if speed.name in shares else ""
        print(f"{rate}  {share:28} ({speed.what_counts})")
    return shares


def main() -> None:
    try:
        cuda.load()
        import cupy
    except MissingExtraError as error:
        print(error)
        sys.exit(2)
    except Exception as error:  # noqa: BLE001 - CuPy has no common class for "no driver", "no device", "no compiler"
        print(f"no GPU that runs the kernels: {error}")
        sys.exit(2)
    device = cuda.device()
    same = parity(device, cupy.asarray, cupy.asnumpy, large=20_000)
    for name in (name for name, holds in same.items() if not holds):
        print(f"differs: {name}")
    print(f"{sum(same.values())} of {len(same)} comparisons equal, byte for byte")
    if not all(same.values()):
        sys.exit(1)
    found = speeds(cupy, device)
    shares = print_speeds(found)
    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"].decode()
    figures = {"device": name, "compared": len(same), "shares": shares, "speeds": [asdict(speed) for speed in found]}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
