"""Rows per second of the record codec, Arrow <-> batches, on one core: `python tests/bench/bench_records.py`.

Values have random sizes around the named mean; batches are 64 KiB before compression, as a producer makes them. Each figure is
the best of several runs over the same input, after one run that loads the compiled loops. The clock is processor time: the
codec uses one core and waits for nothing, and what else runs on the machine is not its doing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from raftlake.arrow.records import KernelLoader, decode_to_arrow, encode_from_arrow
from raftlake.wire.batches import parse_header

BATCH_BYTES = 64 * 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def make_values(rows: int, size_mean: int, seed: int) -> pa.Array:
    """Text-like values (compressible), sizes uniform in [mean / 2, 3 mean / 2]."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(size_mean // 2, size_mean * 3 // 2 + 1, rows)
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    words = rng.integers(97, 123, (4096, 8), np.uint8)
    data = words[rng.integers(0, 4096, int(ends[-1]) // 8 + 1)].reshape(-1)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def best_seconds(run: Callable[[], object], repeat: int) -> float:
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def measure(size_mean: int, rows: int, codec: str, loader: KernelLoader, repeat: int) -> dict[str, object]:
    values = make_values(rows, size_mean, seed=size_mean)
    keys = pa.array([b"%08d" % (row % 1000) for row in range(rows)], pa.binary())

    def encode() -> list[bytearray]:
        return encode_from_arrow(
            keys, values, timestamp_ms=1_700_000_000_000, batch_bytes_max=BATCH_BYTES, compression=codec, loader=loader
        )

    batches = encode()
    for index, batch in enumerate(batches):
        rows_before = sum(parse_header(earlier).record_count for earlier in batches[max(0, index - 1) : index])
        base = (0 if index == 0 else int.from_bytes(batches[index - 1][:8], "big")) + rows_before
        batch[:8] = base.to_bytes(8, "big")
    buffers = [b"".join(batches[start : start + 16]) for start in range(0, len(batches), 16)]

    def decode() -> pa.RecordBatch:
        return decode_to_arrow(buffers, topic="flights", partition=0, loader=loader)

    table = decode()
    if table.num_rows != rows or not table["value"].equals(values) or not table["key"].equals(keys):
        raise AssertionError("the codec does not give back what it was given")
    return {
        "value_bytes": size_mean,
        "codec": codec,
        "decode_rows_per_s": round(rows / best_seconds(decode, repeat)),
        "encode_rows_per_s": round(rows / best_seconds(encode, repeat)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=64, help="values per measurement")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="measure plain Python instead of the compiled loops")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    loader = KernelLoader(plain_rows_max=1 << 60 if arguments.plain else 0)
    for size_mean in (100, 1024):
        for codec in CODECS:
            result = measure(size_mean, (arguments.megabytes << 20) // size_mean, codec, loader, arguments.repeat)
            if arguments.json:
                print(json.dumps(result))
            else:
                print(
                    f"{result['value_bytes']:>5} B {result['codec']:7} decode {result['decode_rows_per_s']:>12,} rows/s"
                    f"   encode {result['encode_rows_per_s']:>12,} rows/s"
                )


if __name__ == "__main__":
    main()
