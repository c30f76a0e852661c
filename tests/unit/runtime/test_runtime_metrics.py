"""Metrics: KRaft's names, windows of thirty seconds, and nothing that a scrape could trip over."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raftlake.kv.commands import put
from raftlake.kv.keyspace import entry_bytes
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import TierError, TierFailure
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import Offset
from raftlake.replica.compaction.compactor import CompactionCounts
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.tiering.step import TierCounts
from raftlake.replica.tiering.tiering import TierStatus
from raftlake.runtime.metrics import SAMPLE_PIECE, Latency, NodeMetrics, Rate
from runtime_http_fakes import FakeClock, FakeHttpNode, partition


def build() -> tuple[NodeMetrics, FakeHttpNode, FakeClock]:
    node, clock = FakeHttpNode(), FakeClock()
    metrics = NodeMetrics(node, clock, lambda: {"client": 4, "http": 1}, lambda: 77)  # type: ignore[arg-type]
    return metrics, node, clock


def samples(metrics: NodeMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(metrics.node_text().decode()):
        assert family.documentation
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_what_is_measured_for_the_node_as_a_whole() -> None:
    metrics, node, _ = build()
    node.kv.apply(put("k", b"value"))
    found = samples(metrics)
    assert found["raftlake_connections", (("listener", "client"),)] == 4
    assert found["raftlake_queued_request_bytes", ()] == 77
    assert found["raftlake_number_of_voters", ()] == 2
    assert found["raftlake_kv_bytes", ()] == entry_bytes("k", 5)
    assert found["raftlake_kv_quota_bytes", ()] == 1 << 30
    assert (found["raftlake_producer_ids", ()], found["raftlake_producer_ids_max", ()]) == (0, 1_000_000)
    assert found["raftlake_process_resident_memory_bytes", ()] > 0


def test_what_compaction_has_removed() -> None:
    metrics, node, _ = build()
    counts = CompactionCounts(passes=4, failures=3, records_removed=200, bytes_removed=1_000)
    node.compactor = SimpleNamespace(counts=counts, dirtiest=0.25)  # type: ignore[attr-defined]
    found = {name.removeprefix("raftlake_compaction_"): value for (name, _), value in samples(metrics).items()}
    told = [found[f"{name}_total"] for name in ("passes", "failures", "removed_records", "removed_bytes")]
    assert (told, found["dirty_ratio_max"]) == ([4, 3, 200, 1_000], 0.25)


def test_what_consumers_had_from_the_tier() -> None:
    metrics, node, _ = build()
    assert not [name for name, _ in samples(metrics) if name.startswith("raftlake_tier")], "a node without a tier"
    node.tiering = SimpleNamespace(is_on=True, statuses=list, counts=TierCounts())
    node.read_tally = SimpleNamespace(reads=3, bytes=700, hits=9, searches=2, failures=1)  # type: ignore[attr-defined]
    found = {name: value for (name, _), value in samples(metrics).items()}
    told = {name: found[f"raftlake_tier_{name}_total"] for name in ("reads", "read_bytes", "read_hits", "searches")}
    assert told == {"reads": 3, "read_bytes": 700, "read_hits": 9, "searches": 2}
    assert (found["raftlake_tier_read_failures_total"], found["raftlake_tier_failures_total"]) == (1, 0)


def test_thousands_of_logs_are_looked_at_a_piece_at_a_time() -> None:
    metrics, node, clock = build()
    node.partitions = {GroupId("t", index): partition(10, leads=True) for index in range(3 * SAMPLE_PIECE)}
    assert len(list(metrics.sample())) == 3
    for index in range(3 * SAMPLE_PIECE):
        node.partitions[GroupId("t", index)].core.log_end = 11
    # One is gone amid the next look.
    looking = metrics.sample()
    next(looking)
    del node.partitions[GroupId("t", 5)]
    clock.advance_ms(1000)
    assert len(list(looking)) == 2
    assert metrics._appended.total == 3 * SAMPLE_PIECE


def test_what_was_refused_is_counted() -> None:
    metrics, node, _ = build()
    node.kv.gate.count, node.kv.refused_keys.count, node.reports.refused_epochs = 3, 4, 5
    found = samples(metrics)
    assert found["raftlake_refused_proposals_total", ()] == 3
    assert found["raftlake_ignored_keys_total", ()] == 4
    assert found["raftlake_refused_epochs_total", ()] == 5


def test_damaged_logs_are_counted_until_they_are_whole_again() -> None:
    metrics, node, _ = build()
    assert samples(metrics)["raftlake_impaired_partitions", ()] == 0
    node.damage.impaired = {METADATA_GROUP: "a torn batch", GroupId("t", 1): "a flipped bit"}
    assert samples(metrics)["raftlake_impaired_partitions", ()] == 2
    del node.damage.impaired[METADATA_GROUP]
    assert samples(metrics)["raftlake_impaired_partitions", ()] == 1


def test_the_tier_is_counted_where_there_is_one() -> None:
    metrics, node, _ = build()
    assert not any(name.startswith("raftlake_tier") for name, _ in samples(metrics))
    counts = TierCounts(segments=1, log_bytes=2, failures=3, checks=4, damaged=5, deletions=6, drops=7)
    statuses = [
        TierStatus(
            group=METADATA_GROUP,
            copied_end=Offset(end),
            start_offset=Offset(0),
            checked_end=Offset(checked),
            high_watermark=Offset(10),
            lag_ms=lag_ms,
            failures=0,
            error=error,
            failing_since_ms=None,
        )
        for end, checked, lag_ms, error in ((8, 0, 5, None), (9, 9, 4, TierError(TierFailure.UNKNOWN, "no answer")))
    ]
    node.tiering = SimpleNamespace(is_on=True, counts=counts, statuses=lambda: statuses)
    told = {name.removeprefix("raftlake_tier_"): value for (name, _), value in samples(metrics).items() if "_tier_" in name}
    found = {
        name: value for name, value in told.items() if "read" not in name and "searches" not in name and "recover" not in name
    }
    assert found == {
        "lag_ms": 5,
        "lag_offsets": 3,
        "unchecked_offsets": 8,
        "failing_partitions": 1,
        "segments_total": 1,
        "log_bytes_total": 2,
        "failures_total": 3,
        "checks_total": 4,
        "damaged_total": 5,
        "deletions_total": 6,
        "drops_total": 7,
    }


def test_requests_are_counted_by_api() -> None:
    metrics, _, _ = build()
    for api in ("FETCH", "FETCH", "PRODUCE"):
        metrics.count_request(api)
    found = samples(metrics)
    assert found["raftlake_requests_total", (("api", "FETCH"),)] == 2
    assert found["raftlake_requests_total", (("api", "PRODUCE"),)] == 1


def test_refused_connections_are_counted_by_setting() -> None:
    metrics, _, _ = build()
    metrics.count_refused("max.connections.per.ip")
    found = samples(metrics)
    assert found["raftlake_refused_connections_total", (("setting", "max.connections.per.ip"),)] == 1
    assert found["raftlake_refused_connections_total", (("setting", "max.connections"),)] == 0


def test_rates_tell_appends_from_fetches() -> None:
    metrics, node, clock = build()
    node.partitions = {METADATA_GROUP: partition(0, leads=True), GroupId("t", 0): partition(0, leads=False)}
    for second in range(5):
        node.partitions[METADATA_GROUP].core.log_end = second * 10
        node.partitions[GroupId("t", 0)].core.log_end = second * 3
        list(metrics.sample())
        clock.advance_ms(1000)
    found = samples(metrics)
    assert found["raftlake_append_records_rate", ()] == 10
    assert found["raftlake_fetch_records_rate", ()] == 3
    # A log that was cut, or that is gone, is no record less.
    node.partitions[METADATA_GROUP].core.log_end = 5
    del node.partitions[GroupId("t", 0)]
    list(metrics.sample())
    assert samples(metrics)["raftlake_append_records_rate", ()] == pytest.approx(8)


def test_commit_latency_is_measured_below_a_millisecond() -> None:
    metrics, _, clock = build()
    for microseconds in (250, 750):
        started = metrics.start_commit()
        clock.us += microseconds
        metrics.note_commit(started)
    found = samples(metrics)
    assert (found["raftlake_commit_latency_avg", ()], found["raftlake_commit_latency_max", ()]) == (0.5, 0.75)


def test_election_latency_is_the_time_without_a_known_leader() -> None:
    metrics, node, clock = build()
    (on_role,) = node.reports.role_listeners

    def report(group: GroupId, leader_id: int) -> None:
        on_role(group, ReportRole(role="Follower", epoch=1, leader_id=leader_id, reason=""))  # type: ignore[arg-type]

    clock.advance_ms(40)
    report(METADATA_GROUP, 2)
    clock.advance_ms(500)
    report(GroupId("t", 0), -1)
    report(METADATA_GROUP, -1)
    clock.advance_ms(60)
    report(METADATA_GROUP, -1)
    clock.advance_ms(60)
    report(METADATA_GROUP, 3)
    report(METADATA_GROUP, 3)
    found = samples(metrics)
    assert (found["raftlake_election_latency_avg", ()], found["raftlake_election_latency_max", ()]) == (80, 120)


def test_windows_forget() -> None:
    latency = Latency()
    latency.note(0, 5000)
    latency.note(10_000_000, 1000)
    assert latency.read(10_000_000) == (3.0, 5.0)
    assert latency.read(31_000_000) == (1.0, 1.0)
    assert latency.read(50_000_000) == (0.0, 0.0)
    rate = Rate()
    assert rate.read() == 0.0
    for second in range(100):
        rate.sample(second * 1000)
        rate.total += 7
    assert rate.read() == 7.0
    assert len(rate._samples) <= 32


def test_partitions_with_a_replica_that_is_not_in_sync_are_counted_by_their_leader() -> None:
    metrics, node, _ = build()
    assert samples(metrics)["raftlake_under_replicated_partitions", ()] == 0
    node.in_sync.under_replicated = 7
    assert samples(metrics)["raftlake_under_replicated_partitions", ()] == 7
