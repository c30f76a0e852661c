"""The Delta table of a topic: its place, its columns, its properties, its `txn` names; whether a table that is there is ours.

The columns are those of `arrow/segment.py`, partitioned by `partition`. The table needs readers of version 1 and writers of
version 2, and no feature above them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from deltalake import DeltaTable, Schema

from raftlake.arrow.records import segment_schema
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage
from raftlake.wire import ids
from raftlake.wire.ids import id_to_text

FORMAT = "1"
CLUSTER_PROPERTY, TOPIC_ID_PROPERTY, TOPIC_PROPERTY = "raftlake.clusterId", "raftlake.topicId", "raftlake.topic"
PARTITION_COLUMNS = ["partition"]
#: Columns with statistics: what queries filter by, and what finds the last copy after OPTIMIZE.
STATISTICS_COLUMNS = ("offset", "timestamp", "kind", "leader_epoch", "incarnation", "segment_id")
#: Of a topic that is dropped, and of an incarnation that is over. Leaders have lower ones.
LAST_EPOCH = 2**31 - 1
#: An unclean recovery counts incarnations up by one.
_INCARNATIONS_BEYOND = 16
#: Delta may be told to forget old `txn` versions. The fences of this table are such versions.
_FORGETS_FENCES = "delta.setTransactionRetentionDuration"
#: What to do about a table that cannot be used.
_OF_ANOTHER = "put back the table that was here; where none was, move this one away, or set tier.uri"
_ALTERED = "RESTORE the version before that change; a table that never was the tier's belongs elsewhere"


class _Field(NamedTuple):
    type: str
    is_nullable: bool


def table_uri(tier_uri: str, group: GroupId) -> str:
    """Where the table of a topic is."""
    return ids.table_uri(tier_uri, group.topic, group.topic_id)


def delta_schema() -> Schema:
    """The columns of a table as delta-rs has them."""
    return Schema.from_arrow(segment_schema())


def table_properties(cluster_id: str, group: GroupId) -> dict[str, str]:
    """The properties of a new table."""
    return {
        "raftlake.format": FORMAT,
        CLUSTER_PROPERTY: cluster_id,
        TOPIC_ID_PROPERTY: id_to_text(group.topic_id),
        TOPIC_PROPERTY: group.topic,
        # A commit is small, and a partition may make one in each minute. A checkpoint lists all files of the table.
        "delta.checkpointInterval": "100",
        # OPTIMIZE of Spark makes statistics of these columns, and none of keys and values.
        "delta.dataSkippingStatsColumns": ",".join(STATISTICS_COLUMNS),
    }


def end_app(cluster_id: str, lineage: Lineage) -> str:
    """The `txn` whose version is the last offset that is shown of a lineage."""
    group = lineage.group
    return f"{cluster_id}/{id_to_text(group.topic_id)}/{group.partition}/{lineage.incarnation}"


def epoch_app(cluster_id: str, lineage: Lineage) -> str:
    """The `txn` whose version is the highest leader epoch of a lineage."""
    return f"{end_app(cluster_id, lineage)}/epoch"


def begin_app(cluster_id: str, lineage: Lineage) -> str:
    """The `txn` whose version is the last offset before those that an incarnation shows first by itself."""
    return f"{end_app(cluster_id, lineage)}/begin"


def recovery_app(cluster_id: str, group: GroupId, recovery: str) -> str:
    """The `txn` whose version is the incarnation that a recovery began."""
    return f"{cluster_id}/{id_to_text(group.topic_id)}/{group.partition}/recovery/{recovery}"


def newest_incarnation(transaction: Callable[[str], int | None], cluster_id: str, group: GroupId) -> int | None:
    """The newest incarnation that a table knows: its leader has shown a row, or has fenced the leaders before it. None where
    there is none. `transaction` gives the version of a `txn`."""
    newest: int | None = None
    incarnation = 0
    while incarnation < (newest or 0) + _INCARNATIONS_BEYOND:
        lineage = Lineage(group, incarnation)
        # Each commit of a leader sets its epoch.
        if transaction(epoch_app(cluster_id, lineage)) is not None or transaction(end_app(cluster_id, lineage)) is not None:
            newest = incarnation
        incarnation += 1
    return newest


class Difference(NamedTuple):
    """What makes a table another one than that of a topic, and what to do, in words."""

    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: {self.advice}"


def difference(table: DeltaTable, cluster_id: str, group: GroupId) -> Difference | None:
    """None where it is the table of this topic. Columns that others added are no difference: a copy leaves them null."""
    found = table.metadata().configuration
    for name, wanted in table_properties(cluster_id, group).items():
        if name.startswith("raftlake.") and found.get(name) != wanted:
            what = f"is {found[name]}" if name in found else "is missing"
            return Difference(f"its property {name} {what} instead of {wanted}", _OF_ANOTHER)
    if _FORGETS_FENCES in found:
        return Difference(f"its property {_FORGETS_FENCES} makes it forget which leader wrote last", "unset it")
    if table.metadata().partition_columns != PARTITION_COLUMNS:
        what = f"it is partitioned by {table.metadata().partition_columns} instead of {PARTITION_COLUMNS}"
        return Difference(what, _OF_ANOTHER)
    altered = _schema_difference(_fields(table.schema()), _fields(delta_schema()))
    return None if altered is None else Difference(altered, _ALTERED)


def _fields(schema: Schema) -> dict[str, _Field]:
    fields = json.loads(schema.to_json())["fields"]
    return {field["name"]: _Field(json.dumps(field["type"], sort_keys=True), field["nullable"]) for field in fields}


def _schema_difference(found: Mapping[str, _Field], wanted: Mapping[str, _Field]) -> str | None:
    for name, field in wanted.items():
        if name not in found:
            return f"it has no column {name}"
        if found[name].type != field.type:
            return f"its column {name} is of type {found[name].type} instead of {field.type}"
    for name, field in found.items():
        if name not in wanted and not field.is_nullable:
            return f"it has a column {name} that may not be null, and copies cannot fill it"
    return None
