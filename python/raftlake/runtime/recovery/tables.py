"""The plan of a new directory, from what the Delta tables tell (`tier.inventory`). Nothing is read or written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raftlake.errors import ConfigError, WrongState
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, LineageFacts
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.config import TOPIC_PARTITIONS_MAX
from raftlake.runtime.recovery.from_tier import RestoredPartition, RestoredTopic, TierPlan
from raftlake.tier.told import ToldPartition, ToldTable


def plan_of(tables: Sequence[ToldTable], tier_uri: str, partitions: Mapping[str, int]) -> TierPlan:
    """A new directory from all tables of one cluster. `partitions` tells how many a topic has, where its table shows fewer.
    Raises WrongState, ConfigError."""
    live = [table for table in tables if not table.is_dropped]
    clusters = sorted({table.cluster_id for table in live})
    if not clusters:
        raise WrongState(f"{tier_uri} has no table of a topic: is it the tier.uri of the nodes?")
    if len(clusters) > 1:
        raise WrongState(
            f"{tier_uri} has tables of several clusters, {', '.join(clusters)}: say with --cluster-id which one is to come back"
        )
    by_name: dict[str, ToldTable] = {}
    for table in live:
        if table.topic in by_name:
            raise WrongState(
                f"topic {table.topic} has two tables, {by_name[table.topic].uri} and {table.uri}: it was deleted and created "
                "again, and the older table was not emptied. Move that one away"
            )
        by_name[table.topic] = table
    for name in partitions:
        if name not in by_name:
            raise ConfigError(f"--partitions={name}={partitions[name]}: there is no table of a topic {name} at {tier_uri}")
    topics = [_topic(table, partitions.get(table.topic)) for table in live]
    count = sum(len(topic.partitions) for topic in topics)
    if count > TOPIC_PARTITIONS_MAX:
        raise WrongState(f"{tier_uri} has {count} partitions in all; accepted are at most {TOPIC_PARTITIONS_MAX}")
    return TierPlan(cluster_id=clusters[0], tier_uri=tier_uri, topics=topics)


def _topic(table: ToldTable, count: int | None) -> RestoredTopic:
    """Each partition from 0 on. One that the table does not know begins empty."""
    known = 1 + max(table.partitions, default=0)
    if count is not None and not known <= count <= TOPIC_PARTITIONS_MAX:
        accepted = f"{known}..{TOPIC_PARTITIONS_MAX}"
        raise ConfigError(f"--partitions={table.topic}={count}: accepted is {accepted}, for the table shows {known} partitions")
    group = GroupId(table.topic, 0, table.topic_id)
    restored = {
        index: _partition(group._replace(partition=index), table.partitions.get(index)) for index in range(count or known)
    }
    return RestoredTopic(name=table.topic, topic_id=table.topic_id, table=table.uri, partitions=restored)


def _partition(group: GroupId, told: ToldPartition | None) -> RestoredPartition:
    if told is None or told.facts is None:
        return RestoredPartition(_nothing(group, Epoch(0) if told is None else told.leader_epoch), None)
    facts = replace(told.facts, leader_epoch=told.leader_epoch)
    return RestoredPartition(facts, told.auxiliary, lacking=told.lacking, timestamp_ms=told.timestamp_ms)


def _nothing(group: GroupId, leader_epoch: Epoch) -> LineageFacts:
    return LineageFacts(
        lineage=Lineage(group, 0),
        leader_epoch=leader_epoch,
        start_offset=Offset(0),
        end_offset=Offset(0),
        segments=0,
        size=0,
        log_bytes=0,
        epochs=(),
        newest=(),
    )
