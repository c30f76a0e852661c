"""Tables with some history for tests of readers, and damage that other programs do to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from contract.tier_contract import GROUP, data_batch, request_for
from raftlake.arrow.records import segment_schema
from raftlake.ports.tier import Lineage, RemoteSegment
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.entries import PartitionKeys, Tiered
from raftlake.tier.findings import Finding
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from raftlake.tier.verify import QuorumKeys, verify_table
from raftlake.wire.control import leader_change_batch

#: Of the partition that `fill` fills first, as segments: the first offset and the epoch of each batch.
SEGMENTS = (((0, 3), (1, 3), (4, 3)), ((7, 3), (10, 5)), ((13, 5), (16, 5), (19, 8)), ((22, 8),))
END = 25


def lineage(partition: int = 2, incarnation: int = 0) -> Lineage:
    return Lineage(GROUP._replace(partition=partition), incarnation)


def fill(settings: TierSettings, partitions: Sequence[int] = (2,)) -> list[RemoteSegment]:
    """Copies of data, control and compressed batches in each of these partitions; those of the first one."""
    tier = DeltaTier(settings)
    made: list[RemoteSegment] = []
    for partition in partitions:
        for number, batches in enumerate(SEGMENTS):
            content = b"".join(batch_of(*batch) for batch in batches)
            answer = tier.copy(request_for(content, f"p{partition}s{number}", 9, lineage(partition)))
            assert isinstance(answer, RemoteSegment), answer
            made.append(answer)
    return made[: len(SEGMENTS)]


def batch_of(base: int, epoch: int) -> bytes:
    """The first one is a control batch of one record, one is compressed, the others are plain."""
    if base == 0:
        return bytes(leader_change_batch(0, epoch, 1_700_000_000_000, 1, (1, 2, 3), (1, 2)))
    return data_batch(base, epoch, compression="zstd" if base == 13 else "none")


def root_of(settings: TierSettings) -> Path:
    return Path(table_uri(settings.uri, GROUP))


def verify(settings: TierSettings, keys: QuorumKeys | None = None) -> list[Finding]:
    return list(verify_table(TopicHistory(str(root_of(settings))), keys).findings)


def told(findings: Sequence[Finding]) -> list[tuple[str, int | None]]:
    """The kind and the offset of each."""
    return [(finding.kind.word, finding.offset) for finding in findings]


def all_rows(settings: TierSettings) -> Any:
    """Everything that the table shows, in the order of offsets."""
    table = DeltaTable(root_of(settings))
    names = ", ".join(f'"{name}"' for name in segment_schema().names)
    query = f'select {names} from t order by "partition", "offset"'
    return pa.table(QueryBuilder().register("t", table).execute(query).read_all()).cast(segment_schema())


def rewrite(settings: TierSettings, change: Callable[[Any], Any]) -> None:
    """Another program writes the table anew, with other rows."""
    write_deltalake(root_of(settings), change(all_rows(settings)), mode="overwrite")


def with_value(rows: Any, name: str, offset: int, value: Any, partition: int = 2) -> Any:
    """The same rows with another value in the row of an offset."""
    places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    values = rows[name].to_pylist()
    row = list(places).index((partition, offset))
    values[row] = value
    column = rows.schema.get_field_index(name)
    return rows.set_column(column, rows.schema.field(name), pa.array(values, rows.schema.field(name).type))


def keys_of(segments: Sequence[RemoteSegment]) -> PartitionKeys:
    """What the quorum's keys say after these copies."""
    tiered = Tiered(start_offset=segments[0].base_offset, end_offset=segments[0].base_offset)
    for segment in segments:
        tiered = tiered.finish(segment)
    return PartitionKeys(tiered, {segment.base_offset: segment for segment in segments})


def at_rest(keys: PartitionKeys, partition: int = 2) -> QuorumKeys:
    """The same before and after."""
    return QuorumKeys({partition: keys}, {partition: keys})
