"""Rows from the table are those from the log: the same records, copied and read both ways, are the same Arrow rows."""

from __future__ import annotations

import tempfile

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.fakelog import FakeQuorum
from contract.tier_contract import GROUP, request_for
from historykit import lineage
from pyspark_raftlake.options import Quorum
from pyspark_raftlake.planning import RangePartition
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.reader import read_range
from pyspark_raftlake.tables import TablePiece, TablePlace
from raftlake.arrow.records import record_schema
from raftlake.ports.tier import RemoteSegment
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.control import leader_change_batch

CONTENT = st.none() | st.binary(max_size=12)
TIMES = st.sampled_from([-1, 0, 1, 1_700_000_000_123, 253_402_300_799_999]) | st.integers(0, 4_102_444_800_000)
HEADERS = st.lists(st.tuples(st.text(max_size=4), CONTENT), max_size=3).map(tuple)
RECORDS = st.lists(st.builds(Record, timestamp_ms=TIMES, key=CONTENT, value=CONTENT, headers=HEADERS), min_size=1, max_size=6)
COMPRESSIONS = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])
#: Records, their compression, and whether the log gave them its own time. None is a control record.
BATCHES = st.lists(st.none() | st.tuples(RECORDS, COMPRESSIONS, st.booleans()), min_size=1, max_size=6)


def made(batch: tuple[list[Record], str, bool] | None, base: int) -> bytes:
    if batch is None:
        return bytes(leader_change_batch(base, 3, 1_700_000_000_000, 1, (1, 2, 3), (1, 2)))
    records, compression, is_log_time = batch
    more = {"log_append_time": True} if is_log_time else {}
    return bytes(build_batch(records, base_offset=base, leader_epoch=3, timestamp_ms=77, compression=compression, **more))


@settings(max_examples=40, deadline=None)
@given(batches=BATCHES, headers=st.booleans(), cut=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_table_and_log_give_the_same_rows(
    batches: list[tuple[list[Record], str, bool] | None], headers: bool, cut: tuple[int, int]
) -> None:
    quorum = FakeQuorum(**{GROUP.topic: 3})
    log = quorum.logs[GROUP.topic][2]
    contents: list[bytes] = []
    for batch in batches:
        contents.append(made(batch, log.end))
        log.append(contents[-1])
    start, end = min(cut[0], log.end - 1), min(log.end, max(cut[0], log.end - cut[1]))
    with tempfile.TemporaryDirectory() as place:
        copied = TierSettings(uri=place, cluster_id="cluster")
        # The stamps of the log's batches are those of a leader: the table has the same offsets.
        assert isinstance(DeltaTier(copied).copy(request_for(b"".join(contents), "s", 5, lineage())), RemoteSegment)
        history = TopicHistory(table_uri(place, GROUP))
        piece = TablePiece(place=TablePlace(uri=history.uri), files=tuple(history.files(2)))

        def read(table: TablePiece | None) -> pa.Table:
            task = RangePartition(
                range=OffsetRange(topic=GROUP.topic, partition=2, start=start, end=end),
                topic_id=quorum.ids[GROUP.topic],
                quorum=Quorum(bootstrap_servers="a:1", client_id="c"),
                node_id=None,
                replicas=(1,),
                include_headers=headers,
                fail_on_data_loss=True,
                table=table,
                reads_log=table is None,
            )
            rows = list(read_range(quorum, task))
            return pa.Table.from_batches(rows, record_schema(headers)).combine_chunks()

        from_log, from_table = read(None), read(piece)
    assert from_table.schema.equals(from_log.schema)
    assert from_table.equals(from_log), (from_table.to_pylist(), from_log.to_pylist())
