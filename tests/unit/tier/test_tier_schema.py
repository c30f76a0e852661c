"""The table of a topic: its place, its properties, and which tables at that place are refused, with what words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from contract.tier_contract import GROUP, LINEAGE, failure
from raftlake.arrow.records import segment_schema
from raftlake.ports.tier import LineageEnd, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.schema import difference, table_properties, table_uri
from tierkit import local_settings

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize("root", ["s3://bucket/history", "s3://bucket/history/"])
def test_a_topic_is_found_by_its_name_and_id(root: str) -> None:
    assert table_uri(root, GROUP) == f"s3://bucket/history/flights-{TOPIC_ID}"


def test_a_new_table_is_one_that_every_reader_reads(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    assert DeltaTier(settings).claim(LINEAGE, Epoch(1)) == LineageEnd(None)
    table = DeltaTable(table_uri(settings.uri, GROUP))
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features and not protocol.writer_features
    assert table.metadata().configuration == {
        "raftlake.format": "1",
        "raftlake.clusterId": "cluster",
        "raftlake.topicId": TOPIC_ID,
        "raftlake.topic": "flights",
        "delta.checkpointInterval": "100",
        "delta.dataSkippingStatsColumns": "offset,timestamp,kind,leader_epoch,incarnation,segment_id",
    }
    assert table.metadata().partition_columns == ["partition"]
    assert pa.schema(table.schema().to_arrow()).names == segment_schema().names
    assert difference(table, "cluster", GROUP) is None


def without(name: str) -> Any:
    schema = segment_schema()
    return schema.remove(schema.get_field_index(name))


OURS = table_properties("cluster", GROUP)


@pytest.mark.parametrize(
    ("schema", "partitioning", "properties", "words"),
    [
        (
            segment_schema(),
            ["partition"],
            {},
            "format is missing instead of 1: put back the table that was here",
        ),
        (segment_schema(), ["partition"], OURS | {"raftlake.format": "2"}, "its property raftlake.format is 2 instead of 1"),
        (segment_schema(), ["partition"], OURS | {"raftlake.topicId": "x"}, f"raftlake.topicId is x instead of {TOPIC_ID}"),
        (segment_schema(), ["partition"], OURS | {"raftlake.clusterId": "y"}, "raftlake.clusterId is y instead of cluster"),
        (
            segment_schema(),
            ["partition"],
            OURS | {"delta.setTransactionRetentionDuration": "interval 1 day"},
            "makes it forget which leader wrote last",
        ),
        (segment_schema(), [], OURS, r"partitioned by \[\] instead of \['partition'\]"),
        (without("headers"), ["partition"], OURS, "it has no column headers"),
        (without("kind").append(pa.field("kind", pa.int64())), ["partition"], OURS, 'column kind is of type "long"'),
        (
            segment_schema().append(pa.field("mine", pa.int64(), nullable=False)),
            ["partition"],
            OURS,
            "a column mine that may not be null, and copies cannot fill it: RESTORE the version before that change",
        ),
    ],
)
def test_another_table_is_refused_with_its_path_and_the_difference(
    tmp_path: Path, schema: Any, partitioning: list[str], properties: dict[str, str], words: str
) -> None:
    settings = local_settings(tmp_path)
    uri = table_uri(settings.uri, GROUP)
    DeltaTable.create(
        uri, Schema.from_arrow(schema), partition_by=partitioning, configuration=properties, raise_if_key_not_exists=False
    )
    answer = DeltaTier(settings).claim(LINEAGE, Epoch(1))
    assert failure(answer) is TierFailure.UNUSABLE and isinstance(answer, TierError)
    assert uri in answer.reason
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(answer.reason)
    assert DeltaTable(uri).version() == 0


def test_a_table_that_was_changed_while_it_was_open_is_refused(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    tier = DeltaTier(settings)
    assert tier.claim(LINEAGE, Epoch(1)) == LineageEnd(None)
    table = DeltaTable(table_uri(settings.uri, GROUP))
    table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 day"}, raise_if_not_exists=False)
    assert failure(tier.claim(LINEAGE, Epoch(1))) is TierFailure.UNUSABLE


def test_of_two_nodes_that_create_a_table_both_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = local_settings(tmp_path)
    create: Callable[..., Any] = DeltaTable.create
    others: list[object] = []

    def create_second(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(DeltaTable, "create", create)
        others.append(DeltaTier(settings).claim(LINEAGE, Epoch(1)))
        return create(*arguments, **options)

    monkeypatch.setattr(DeltaTable, "create", create_second)
    assert DeltaTier(settings).claim(LINEAGE, Epoch(2)) == LineageEnd(None)
    assert others == [LineageEnd(None)]
    assert DeltaTable(table_uri(settings.uri, GROUP)).version() == 2
