"""Consumers' fetches and offsets, at the leader and at followers; what is not told before the leader's own epoch commits."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import decode_records
from replica_cluster import Cluster, batch, fetch_request


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def test_a_parked_fetch_is_answered_by_the_append_it_waits_for(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("parked")
    config = cluster.leader(group).config
    # A follower that the majority can do without hears of a record after a pause, and of its commit a little later.
    news_ms = config.replica_fetch_pause_ms + config.replica_fetch_linger_ms + 5
    for node in cluster.nodes.values():
        end = cluster.leader(group).partitions[group].high_watermark
        # The second follower of a new group hears of its first record after a pause.
        cluster.run(100, until=lambda node=node, end=end: node.partitions[group].high_watermark == end)  # type: ignore[misc]
        answers = cluster.send(node, ApiKey.FETCH, fetch_request(group, end, wait_ms=5000))
        cluster.run(5)
        assert not answers
        cluster.produce(group, batch(b"x"))
        cluster.run(news_ms, until=lambda answers=answers: bool(answers))  # type: ignore[misc]
        assert [r.value for r in decode_records(answers[0].topics[0].partitions[0].records)] == [b"x"]


def test_a_fetch_that_times_out_leaves_nothing_behind(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("idle")
    leader = cluster.leader(group)
    for _ in range(50):
        assert not cluster.fetch(leader, group, 1, wait_ms=10).records
    assert not leader.partitions[group]._watermark_waiters


def test_offsets_outside_the_log_are_out_of_range_at_the_leader_and_not_available_at_a_follower(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("range")
    assert cluster.fetch(cluster.leader(group), group, 99).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.fetch(cluster.followers(group)[0], group, 99).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert cluster.fetch(cluster.leader(group), group, -1).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_is_fenced_by_epoch_and_told_where_it_diverged(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("fence")
    cluster.produce(group, batch(b"x"))
    leader = cluster.leader(group)
    epoch = leader.partitions[group].core.epoch
    assert cluster.fetch(leader, group, 1, current_leader_epoch=epoch - 1).error is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.fetch(leader, group, 1, current_leader_epoch=epoch + 1).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert cluster.fetch(leader, group, 1, last_fetched_epoch=epoch).diverging_epoch is None
    # Epochs begin at 1. As at Kafka, what is of an epoch before the first one ends where the first one begins.
    assert cluster.fetch(leader, group, 1, last_fetched_epoch=0).diverging_epoch == (0, 0)
    assert cluster.fetch(leader, group, 0, last_fetched_epoch=0).diverging_epoch is None


def test_a_consumer_that_is_fenced_learns_who_leads_and_where(cluster: Cluster) -> None:
    """KIP-951: CurrentLeader and NodeEndpoints, at whichever node it asks; neither where there is nothing to correct."""
    (group,) = cluster.create_topic("leads")
    leader = cluster.leader(group)
    epoch = leader.partitions[group].core.epoch
    cluster.run(100)
    everybody = {(node.config.node_id, node.config.listener.host, node.config.listener.port) for node in cluster.nodes.values()}
    for node in cluster.nodes.values():
        for claimed, error in ((epoch - 1, ErrorCode.FENCED_LEADER_EPOCH), (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            answer = cluster.ask(node, ApiKey.FETCH, fetch_request(group, 0, current_leader_epoch=claimed), version=16)
            part = answer.topics[0].partitions[0]
            assert (part.error, part.current_leader) == (error, (leader.config.node_id, epoch))
            assert {(place.node_id, place.host, place.port) for place in answer.node_endpoints} == everybody
        fine = cluster.ask(node, ApiKey.FETCH, fetch_request(group, 0, current_leader_epoch=epoch), version=16)
        assert (fine.topics[0].partitions[0].current_leader, fine.node_endpoints) == (None, [])


def test_a_consumer_that_read_a_tail_which_was_cut_learns_where_it_diverged() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"x"))
    old_epoch = cluster.leader(group).partitions[group].core.epoch
    cluster.stop(cluster.leader(group).config.node_id)
    leader = cluster.leader(group)
    cluster.produce(group, batch(b"y"))
    diverging = cluster.fetch(leader, group, 3, last_fetched_epoch=old_epoch).diverging_epoch
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (old_epoch, 2)


def test_a_consumer_at_the_end_that_read_another_tail_is_told_without_a_wait() -> None:
    """KIP-320: the records that it has were replaced by as many others. A new one may never come."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    old_epoch = cluster.leader(group).partitions[group].core.epoch
    cluster.stop(cluster.leader(group).config.node_id)
    leader = cluster.leader(group)
    end = cluster.produce(group, batch(b"y")).base_offset + 1
    assert leader.partitions[group].high_watermark == end
    before_ms = leader.engine.now_ms
    diverging = cluster.fetch(leader, group, end, wait_ms=5_000, last_fetched_epoch=old_epoch).diverging_epoch
    assert diverging is not None and (diverging.epoch, diverging.end_offset) == (old_epoch, 1)
    assert leader.engine.now_ms - before_ms < 5_000
    current = leader.partitions[group].core.epoch
    assert cluster.fetch(leader, group, end, last_fetched_epoch=current).diverging_epoch is None
    follower = cluster.followers(group)[0]
    behind = cluster.fetch(follower, group, follower.partitions[group].high_watermark, last_fetched_epoch=current + 1)
    assert (behind.error, behind.diverging_epoch) == (ErrorCode.NONE, None), "the leader knows better"


def test_read_committed_gets_an_empty_list_of_aborted_transactions(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("committed")
    result = cluster.fetch(cluster.leader(group), group, 0, isolation_level=1)
    assert result.aborted_transactions == []
    assert result.last_stable_offset == result.high_watermark
