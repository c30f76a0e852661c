"""Spark reads, without a node, the Delta table that the tier wrote: rows, headers, times, filters, streams; and OPTIMIZE."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from contract.tier_adoption_contract import OF_A, OF_A_AGAIN, OF_B, adopt, copied, copy_of
from contract.tier_contract import GROUP, LINEAGE, data_batch, request_for, segment
from deltaspark import Session
from raftlake.ports.tier import Lineage, LineageEnd, RemoteSegment, RemoteState
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from raftlake.tier.table_reads import TableReads
from raftlake.tier.verify import verify_table
from raftlake.tier.verify_sql import CHECKS
from raftlake.wire.control import leader_change_batch
from tierkit import DeltaWorld, local_settings, tier_files

pytestmark = pytest.mark.spark


def test_spark_reads_filters_streams_and_optimizes_what_the_tier_wrote(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    tier = DeltaTier(settings)
    control = leader_change_batch(0, 5, 1_700_000_000_000, 1, (1, 2, 3), (1, 2))
    first = request_for(control + data_batch(1, 5) + data_batch(4, 5, compression="zstd"), "a")
    other = Lineage(GROUP._replace(partition=0), 0)
    for request in (first, segment(7, "b"), segment(0, "c", lineage=other)):
        assert isinstance(tier.copy(request), RemoteSegment)
    session = Session(table_uri(settings.uri, GROUP))
    try:
        check(session, tier)
    finally:
        session.close()


def check(session: Session, tier: DeltaTier) -> None:
    assert session.ask("partitions") == [[0, 6, 0, 5], [2, 13, 0, 12]]
    assert session.ask("read") == {
        "schema": (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
            "headers:array<struct<key:string,value:binary>>,kind:tinyint,leader_epoch:int,batch_base_offset:bigint,"
            "batch_crc:int,batch_attributes:int,producer_id:bigint,producer_epoch:int,base_sequence:int,segment_id:string,"
            "incarnation:int>"
        ),
        "row": ["v5", "2023-11-14T22:13:20.005000", 0, 0, 5],
        "headers": [["h", "1"], ["n", None]],
        "control": [[2, 0]],
        "by time": 3,
        "filtered": [[7, 8], 1],
    }
    assert session.ask("stream") == 19
    before = tier.claim(LINEAGE, Epoch(5))
    history = TopicHistory(table_uri(tier._settings.uri, GROUP))
    assert verify_table(history).findings == () and session.ask("sql") == [0] * len(CHECKS)
    assert session.ask("optimize") == 2
    history = TopicHistory(history.uri)
    assert len(history.files(2)) == 1 and verify_table(history).findings == ()
    after = tier.claim(LINEAGE, Epoch(5))
    assert isinstance(before, LineageEnd) and isinstance(after, LineageEnd) and before.last and after.last
    assert (after.last.segment_id, after.last.end_offset) == ("b", 13)
    assert after.last == before.last and TableReads(tier._settings).check(LINEAGE, after.last) is None
    assert isinstance(tier.copy(segment(13, "d")), RemoteSegment)
    assert session.ask("partitions") == [[0, 6, 0, 5], [2, 19, 0, 18]]
    # OPTIMIZE changes no data: a stream reads each row once.
    assert session.ask("stream") == 25
    assert verify_table(TopicHistory(history.uri)).findings == ()
    DeltaTable(history.uri).delete('"partition" = 2 and "offset" = 9')
    assert [finding.offset for finding in verify_table(TopicHistory(history.uri)).findings] == [9]
    assert session.ask("sql") == [1, 1, 0, 0, 0]


def test_streams_go_on_over_retention_and_vacuum_takes_what_it_removed(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    tier = DeltaTier(settings)
    for base in (0, 6, 12):
        assert isinstance(tier.copy(segment(base, f"s{base}")), RemoteSegment)
    session = Session(table_uri(settings.uri, GROUP))
    try:
        for name in ("plain", "ignoring"):
            assert session.ask(name) == 18
        assert tier.delete(LINEAGE, Epoch(5), Offset(12)) == 12
        assert isinstance(tier.copy(segment(18, "s18")), RemoteSegment)
        assert "DELTA_SOURCE_IGNORE_DELETE" in session.ask("plain")
        assert session.ask("ignoring") == 6
        assert [path for path in tier_files(settings, GROUP) if path.startswith("partition=")] == [
            "partition=2/s0.parquet",
            "partition=2/s12.parquet",
            "partition=2/s18.parquet",
            "partition=2/s6.parquet",
        ]
        assert session.ask("vacuum") == 12
        assert tier_files(settings, GROUP) == [
            "_raftlake/s12.aux",
            "_raftlake/s18.aux",
            "partition=2/s12.parquet",
            "partition=2/s18.parquet",
        ]
        assert tier.delete(LINEAGE, Epoch(5), Offset(18)) == 18
        table = DeltaTable(table_uri(settings.uri, GROUP))
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        assert tier_files(settings, GROUP) == ["_raftlake/s18.aux", "partition=2/s18.parquet"]
        # What is left is all there.
        assert verify_table(TopicHistory(table_uri(settings.uri, GROUP))).findings == ()
        assert isinstance(TableReads(settings).find(LINEAGE, Offset(20)), RemoteState)
    finally:
        session.close()


def test_after_an_unclean_election_spark_reads_one_history_and_the_superseded_one_beside_it(tmp_path: Path) -> None:
    world = DeltaWorld(local_settings(tmp_path))
    copied(world, copy_of(OF_A, 0, 4, 0, "uuid1"))
    session = Session(table_uri(world.settings.uri, GROUP))
    try:
        for name in ("ignoring", "skipping"):
            assert session.ask(name) == 4
        adopt(world, OF_B, "of B", log_start=2)
        copied(world, copy_of(OF_B, 2, 5, 1, "uuid2"))
        assert session.ask("shown") == [text for _, text in OF_B]
        # The commit both removes and adds.
        assert "DELTA_SOURCE_TABLE_IGNORE_CHANGES" in session.ask("ignoring")
        assert session.ask("skipping") == 3
        assert session.ask("vacuum") == 5
        assert session.ask("superseded") == [text for _, text in OF_A[:4]]
        assert session.ask("sql") == [0] * len(CHECKS)
        # VACUUM took nothing that the next election needs.
        adopt(world, OF_A_AGAIN, "of A", log_start=4)
        assert session.ask("shown") == [text for _, text in OF_A[:4]]
        assert world.faults() == []
    finally:
        session.close()
