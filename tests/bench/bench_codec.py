"""The record codec's rows per second, with its budgets; what bench_records.py measures, as results of `make bench`."""

from __future__ import annotations

from collections.abc import Iterator

import bench_records
from measure import Result
from raftlake.arrow.records import KernelLoader

ROWS = 500_000


def measure() -> Iterator[Result]:
    loader = KernelLoader(plain_rows_max=0)
    for value_bytes, codec, decode_at_least, encode_at_least in ((100, "none", 5e6, 3e6), (100, "lz4", None, None)):
        found = bench_records.measure(value_bytes, ROWS, codec, loader, repeat=5)
        method = f"{value_bytes} B values of random size, {codec}, 64 KiB batches, one core, best of 5"
        for way, bound in (("decode", decode_at_least), ("encode", encode_at_least)):
            rate = float(str(found[f"{way}_rows_per_s"]))
            yield Result(name=f"records {way}, {codec}", value=rate, unit="rows/s", method=method, at_least=bound)
