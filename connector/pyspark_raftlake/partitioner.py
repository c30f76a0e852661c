"""Which partition each row goes to, for whole columns at once.

A row's own partition column decides; else its key, as in Kafka's default partitioner (MurmurHash2 with Kafka's seed, without
the sign bit, modulo the number of partitions), so that other Kafka producers put the same key to the same place. Rows
with neither go to the partitions in turn, in runs: a batch per partition is cheaper than a record per partition.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_raftlake.errors import InvalidRow
from raftlake.client.partitioner import murmur2

#: pyarrow ships no types.
Arrow: TypeAlias = Any

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
#: Below this many keys of one length, one after another is faster.
_VECTOR_ROWS_MIN = 32
#: Bytes of keys that are laid out side by side at a time.
_BLOCK_BYTES_MAX = 4 << 20
#: Rows without key and partition that stay together at least.
RUN_ROWS_MIN = 1_000


def partitions_of_rows(
    rows: int, key: Arrow | None, partition: Arrow | None, partition_count: int, turn: int
) -> npt.NDArray[np.int32]:
    """The partition of each row. `key` is a binary array, `partition` an int32 array; None is a column of nulls. `turn` says
    where the rows without either begin. Raises InvalidRow for a partition that does not exist."""
    chosen = np.full(rows, -1, np.int32)
    if key is not None and key.null_count < rows:
        has_key = key.is_valid().to_numpy(zero_copy_only=False)
        hashes = hash_keys(key if key.null_count == 0 else key.drop_null())
        chosen[has_key] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partition_count)
    if partition is not None and partition.null_count < rows:
        is_given = partition.is_valid().to_numpy(zero_copy_only=False)
        given = partition.drop_null().to_numpy(zero_copy_only=False)
        wrong = given[(given < 0) | (given >= partition_count)]
        if len(wrong):
            told = f"partition {wrong[0]} does not exist: the topic has {partition_count} partitions"
            raise InvalidRow(f"column partition: {told}")
        chosen[is_given] = given
    free = np.flatnonzero(chosen < 0)
    if len(free):
        chosen[free] = in_turn(len(free), partition_count, turn)
    return chosen


def in_turn(rows: int, partition_count: int, turn: int) -> npt.NDArray[np.int32]:
    """Runs of nearly equal length over as many partitions as there are enough rows for, beginning with the `turn`-th."""
    runs = min(partition_count, max(1, rows // RUN_ROWS_MIN))
    return ((np.arange(rows, dtype=np.int64) * runs // rows + turn) % partition_count).astype(np.int32)


def hash_keys(keys: Arrow) -> npt.NDArray[np.uint32]:
    """MurmurHash2 of every key of a binary array without nulls."""
    array = keys.cast(pa.large_binary())
    _, ends_buffer, data_buffer = array.buffers()
    rows = len(array)
    hashes = np.empty(rows, np.uint32)
    if rows == 0:
        return hashes
    ends = np.frombuffer(ends_buffer, np.int64)[array.offset : array.offset + rows + 1]
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    lengths = np.diff(ends)
    if (lengths == lengths[0]).all():
        groups = [np.arange(rows)]
    else:
        order = np.argsort(lengths, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)
    for group in groups:
        length = int(lengths[group[0]])
        starts = ends[group]
        if len(group) < _VECTOR_ROWS_MIN:
            hashes[group] = [murmur2(data[start : start + length].tobytes()) for start in starts.tolist()]
        else:
            hashes[group] = _hash_of_length(data, starts, length)
    return hashes


def _hash_of_length(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint32]:
    """Hashes of keys of one length, a block of rows at a time."""
    rows_max = max(1, _BLOCK_BYTES_MAX // max(1, length))
    blocks = [starts[first : first + rows_max] for first in range(0, len(starts), rows_max)]
    return np.concatenate([_hash_block(_side_by_side(data, block, length), length) for block in blocks])


def _side_by_side(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
    """(rows, length): the keys' bytes. A view when they lie one after another, as in a column without gaps."""
    first, last = int(starts[0]), int(starts[-1])
    if last - first == length * (len(starts) - 1) and (np.diff(starts) == length).all():
        return data[first : last + length].reshape(len(starts), length)
    gathered: npt.NDArray[np.uint8] = data[starts[:, None] + np.arange(length)]
    return gathered


def _hash_block(keys: npt.NDArray[np.uint8], length: int) -> npt.NDArray[np.uint32]:
    """MurmurHash2, with each step done for all keys. Overflow of uint32 is what the hash wants."""
    hashes = np.full(len(keys), (_SEED ^ length) & 0xFFFFFFFF, np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    for column in range(whole // 4):
        word = words[:, column] * _M
        word ^= word >> np.uint32(24)
        word *= _M
        hashes *= _M
        hashes ^= word
    if length > whole:
        for shift, column in enumerate(range(whole, length)):
            hashes ^= keys[:, column].astype(np.uint32) << np.uint32(8 * shift)
        hashes *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes
