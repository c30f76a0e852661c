"""What a node measures, under KRaft's metric names (`kafka.raft:type=raft-metrics`) with the prefix `raftlake_`.

Gauges are read at the moment of a scrape. Rates and latencies come from samples of the last 30 seconds, as in
Kafka: `sample` is called once a second and compares each group's log end with the one before; latencies are noted as they
happen. Costs nothing per record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import NO_LEADER
from raftlake.replica.compaction.compactor import Compactor
from raftlake.replica.node import ReplicaNode
from raftlake.replica.tiering.read_tally import ReadTally
from raftlake.replica.tiering.remote_log_aux import AuxCounts
from raftlake.replica.tiering.tiering import Tiering
from raftlake.runtime.clock import SystemClock

WINDOW_SECONDS = 30
#: Partitions that are looked at before others may use the loop.
SAMPLE_PIECE = 100


class Latency:
    """Average and maximum over the window, by whole seconds: (second, count, sum, maximum), in microseconds."""

    def __init__(self) -> None:
        self._buckets: deque[list[int]] = deque()

    def note(self, now_us: int, latency_us: int) -> None:
        second = now_us // 1_000_000
        if not self._buckets or self._buckets[-1][0] != second:
            self._buckets.append([second, 0, 0, 0])
            self._expire(second)
        bucket = self._buckets[-1]
        bucket[1] += 1
        bucket[2] += latency_us
        bucket[3] = max(bucket[3], latency_us)

    def read(self, now_us: int) -> tuple[float, float]:
        """(average, maximum) in milliseconds; both 0 without a sample."""
        self._expire(now_us // 1_000_000)
        count = sum(bucket[1] for bucket in self._buckets)
        if count == 0:
            return 0.0, 0.0
        largest = max(bucket[3] for bucket in self._buckets)
        return sum(bucket[2] for bucket in self._buckets) / count / 1000, largest / 1000

    def _expire(self, second: int) -> None:
        while self._buckets and self._buckets[0][0] <= second - WINDOW_SECONDS:
            self._buckets.popleft()


class Rate:
    """Events a second over the window, from (time, total) samples."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[tuple[int, int]] = deque()

    def sample(self, now_ms: int) -> None:
        self._samples.append((now_ms, self.total))
        while self._samples[0][0] < now_ms - WINDOW_SECONDS * 1000:
            self._samples.popleft()

    def read(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (first_ms, first), (last_ms, last) = self._samples[0], self._samples[-1]
        return (last - first) * 1000 / max(last_ms - first_ms, 1)


class NodeMetrics:
    """The metrics of one node. `connections` tells how many connections each listener has, `queued_bytes` what large frames
    hold that are on their way, `connections_max` how many clients each listener takes."""

    def __init__(
        self,
        node: ReplicaNode,
        clock: SystemClock,
        connections: Callable[[], Mapping[str, int]],
        queued_bytes: Callable[[], int] = lambda: 0,
        connections_max: int = 0,
    ) -> None:
        self._node = node
        self._clock = clock
        self._connections = connections
        self._queued_bytes = queued_bytes
        self._connections_max = connections_max
        self.commit_latency = Latency()
        #: How late a periodic callback of the loop came: what one long piece of work makes everything else wait.
        self.loop_lag = Latency()
        self.election_latency = Latency()
        self._appended = Rate()
        self._fetched = Rate()
        self._log_ends: dict[GroupId, int] = {}
        self._leaderless_since_us: int | None = clock.now_us()
        self.requests: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        node.reports.role_listeners.append(self._on_role)
        self._registry = CollectorRegistry()
        self._registry.register(_NodeCollector(self))
        ProcessCollector(namespace="raftlake", registry=self._registry)

    def start_commit(self) -> int:
        """An append has come; the value goes to `note_commit`."""
        return self._clock.now_us()

    def note_commit(self, started_us: int) -> None:
        """The append is committed."""
        now_us = self._clock.now_us()
        self.commit_latency.note(now_us, now_us - started_us)

    def note_lag(self, lag_us: int) -> None:
        """The loop came so much too late to something."""
        self.loop_lag.note(self._clock.now_us(), lag_us)

    def count_request(self, api: str) -> None:
        self.requests[api] = self.requests.get(api, 0) + 1

    def count_refused(self, setting: str) -> None:
        """A connection was closed because of a limit."""
        self.refused[setting] = self.refused.get(setting, 0) + 1

    def sample(self) -> Generator[None, None, None]:
        """Once a second: how far the logs have come. Yields now and then, since there may be thousands."""
        ends: dict[GroupId, int] = {}
        for number, (group, partition) in enumerate(list(self._node.partitions.items()), 1):
            if number % SAMPLE_PIECE == 0:
                yield
            log_end = partition.core.log_end
            ends[group] = log_end
            grown = log_end - self._log_ends.get(group, log_end)
            if grown > 0:
                rate = self._appended if partition.core.is_leader else self._fetched
                rate.total += grown
        self._log_ends = ends
        now_ms = self._clock.now_ms()
        self._appended.sample(now_ms)
        self._fetched.sample(now_ms)

    def node_text(self) -> bytes:
        """The Prometheus text of what is measured for the node as a whole; `metrics_page` has the partitions."""
        return generate_latest(self._registry)

    def _on_role(self, group: GroupId, report: ReportRole) -> None:
        """The time from losing sight of the metadata log's leader to knowing the next one."""
        if group != self._node.config.quorum_group:
            return
        now_us = self._clock.now_us()
        if report.leader_id == NO_LEADER:
            if self._leaderless_since_us is None:
                self._leaderless_since_us = now_us
        elif self._leaderless_since_us is not None:
            self.election_latency.note(now_us, now_us - self._leaderless_since_us)
            self._leaderless_since_us = None

    def collect(self) -> Iterator[Metric]:
        now_us = self._clock.now_us()
        lag = self.loop_lag.read(now_us)[1]
        yield GaugeMetricFamily("raftlake_loop_lag_ms_max", "Longest pause of the loop in the last 30 s, in ms", value=lag)
        for name, latency in (("commit_latency", self.commit_latency), ("election_latency", self.election_latency)):
            average, maximum = latency.read(now_us)
            yield GaugeMetricFamily(f"raftlake_{name}_avg", f"Average {name} of the last 30 s, in ms", value=average)
            yield GaugeMetricFamily(f"raftlake_{name}_max", f"Largest {name} of the last 30 s, in ms", value=maximum)
        for name, rate in (("append_records", self._appended), ("fetch_records", self._fetched)):
            yield GaugeMetricFamily(f"raftlake_{name}_rate", f"{name} a second over the last 30 s", value=rate.read())
        voters = len(self._node.quorum.latest)
        yield GaugeMetricFamily("raftlake_number_of_voters", "Voters of the quorum", value=voters)
        requests = CounterMetricFamily("raftlake_requests", "Requests served, by API", labels=["api"])
        for api, count in sorted(self.requests.items()):
            requests.add_metric([api], count)
        yield requests
        connections = GaugeMetricFamily("raftlake_connections", "Open connections, by listener", labels=["listener"])
        for listener, count in sorted(self._connections().items()):
            connections.add_metric([listener], count)
        yield connections
        held_to = "Clients that each listener takes: max.connections, or fewer where ulimit -n is low"
        yield GaugeMetricFamily("raftlake_connections_max", held_to, value=self._connections_max)
        refused = CounterMetricFamily("raftlake_refused_connections", "Connections refused, by setting", labels=["setting"])
        for setting in ("max.connections", "max.connections.per.ip"):
            refused.add_metric([setting], self.refused.get(setting, 0))
        yield refused
        queued = "Bytes of large request frames that are being received or wait to be served"
        yield GaugeMetricFamily("raftlake_queued_request_bytes", queued, value=self._queued_bytes())
        keys = len(self._node.kv.machine)
        yield GaugeMetricFamily("raftlake_kv_keys", "Keys in the key-value space", value=keys)
        machine, quota = self._node.kv.machine, self._node.kv.room.quota_bytes
        yield GaugeMetricFamily("raftlake_kv_bytes", "What all keys and values count for, in bytes", value=machine.size)
        yield GaugeMetricFamily("raftlake_kv_quota_bytes", "What they may count for (kv.quota.bytes)", value=quota)
        tally = self._node.producers.tally
        yield GaugeMetricFamily("raftlake_producer_ids", "Producer ids that all partitions remember", value=tally.count)
        ids_max = "How many they may remember (producer.ids.max)"
        yield GaugeMetricFamily("raftlake_producer_ids_max", ids_max, value=tally.ids_max)
        lagging = "Partitions that this node leads and of which a replica is not in sync"
        count = self._node.in_sync.under_replicated
        yield GaugeMetricFamily("raftlake_under_replicated_partitions", lagging, value=count)
        impaired = "Partitions whose log was damaged on this node and is not whole again"
        yield GaugeMetricFamily("raftlake_impaired_partitions", impaired, value=len(self._node.damage.impaired))
        disk = self._node.disk
        free = -1 if disk.free_bytes is None else disk.free_bytes
        yield GaugeMetricFamily("raftlake_disk_free_bytes", "Free bytes of the data directory's disk, -1: unknown", value=free)
        limit = "What has to stay free on it (log.dir.min.free.bytes)"
        yield GaugeMetricFamily("raftlake_disk_min_free_bytes", limit, value=disk.limit_bytes)
        yield GaugeMetricFamily("raftlake_disk_low", "1 while less is free", value=disk.is_low)
        full = "1 while nothing is fetched because a write found no room"
        yield GaugeMetricFamily("raftlake_disk_full", full, value=disk.is_full)
        yield from _compaction(self._node.compactor)
        if self._node.tiering.is_on:
            yield from _tier(self._node.tiering)
            yield from _recoveries(self._node.remote_log_aux.counts)
            yield from _tier_reads(self._node.read_tally)
        applied = self._node.kv.machine.applied_offset
        yield GaugeMetricFamily("raftlake_kv_applied_offset", "Next offset of the metadata log to apply", value=applied)
        ignored, unasked = "Committed reserved entries that mean nothing", "Proposals that their sender may not make"
        yield CounterMetricFamily("raftlake_ignored_keys", ignored, value=self._node.kv.refused_keys.count)
        yield CounterMetricFamily("raftlake_refused_proposals", unasked, value=self._node.kv.gate.count)
        leaps = "Epochs of other nodes that were not taken in, since they leap too far"
        yield CounterMetricFamily("raftlake_refused_epochs", leaps, value=self._node.reports.refused_epochs)


def _compaction(compactor: Compactor) -> Iterator[Metric]:
    """What this node has done with the logs of compacted topics."""
    counts = compactor.counts
    ratio = "Largest part of a log that waits to be compacted, 0 to 1"
    yield GaugeMetricFamily("raftlake_compaction_dirty_ratio_max", ratio, value=compactor.dirtiest)
    yield CounterMetricFamily("raftlake_compaction_passes", "Passes over logs that were compacted", value=counts.passes)
    yield CounterMetricFamily("raftlake_compaction_failures", "Passes that failed", value=counts.failures)
    yield CounterMetricFamily("raftlake_compaction_removed_records", "Records removed", value=counts.records_removed)
    yield CounterMetricFamily("raftlake_compaction_removed_bytes", "Bytes removed from logs", value=counts.bytes_removed)


def _tier(tiering: Tiering) -> Iterator[Metric]:
    """Of the partitions that this node leads, in sum; `/v1/tier` tells them one by one."""
    statuses = tiering.statuses()
    lag = max((status.lag_ms for status in statuses), default=0)
    yield GaugeMetricFamily("raftlake_tier_lag_ms", "Age of the oldest committed record that is not in the tier", value=lag)
    offsets = sum(max(0, status.high_watermark - (status.copied_end or 0)) for status in statuses)
    yield GaugeMetricFamily("raftlake_tier_lag_offsets", "Committed offsets that are not in the tier", value=offsets)
    unchecked = sum(status.unchecked for status in statuses)
    yield GaugeMetricFamily("raftlake_tier_unchecked_offsets", "Copied offsets that are not read back yet", value=unchecked)
    failing = sum(status.error is not None for status in statuses)
    yield GaugeMetricFamily(
        "raftlake_tier_failing_partitions", "Partitions whose last copy, check or removal failed", value=failing
    )
    counts = tiering.counts
    yield CounterMetricFamily("raftlake_tier_segments", "Segments copied by this node", value=counts.segments)
    yield CounterMetricFamily("raftlake_tier_log_bytes", "Bytes of the log copied by this node", value=counts.log_bytes)
    yield CounterMetricFamily("raftlake_tier_checks", "Copies read back as they were written", value=counts.checks)
    yield CounterMetricFamily("raftlake_tier_damaged", "Copies found damaged when they were read back", value=counts.damaged)
    yield CounterMetricFamily("raftlake_tier_deletions", "Removals of old files from tables", value=counts.deletions)
    yield CounterMetricFamily("raftlake_tier_drops", "Tables of deleted topics that were emptied", value=counts.drops)
    yield CounterMetricFamily("raftlake_tier_failures", "Tries of this node that failed", value=counts.failures)


def _recoveries(counts: AuxCounts) -> Iterator[Metric]:
    """Of partitions whose leader's log begins behind ours."""
    built = "Partitions of this node that began behind what the tier holds"
    yield CounterMetricFamily("raftlake_tier_recoveries", built, value=counts.built)
    failed = "Tries of this node to begin behind what the tier holds that failed"
    yield CounterMetricFamily("raftlake_tier_recovery_failures", failed, value=counts.failures)


def _tier_reads(tally: ReadTally) -> Iterator[Metric]:
    """Of the consumers of offsets that are only in the tier."""
    yield CounterMetricFamily("raftlake_tier_reads", "Pieces that this node has read from the tier", value=tally.reads)
    yield CounterMetricFamily("raftlake_tier_read_bytes", "Bytes of them", value=tally.bytes)
    hits = "Reads of consumers from pieces that were here already"
    yield CounterMetricFamily("raftlake_tier_read_hits", hits, value=tally.hits)
    yield CounterMetricFamily("raftlake_tier_searches", "Searches by time that the tier has answered", value=tally.searches)
    yield CounterMetricFamily("raftlake_tier_read_failures", "Reads and searches that failed", value=tally.failures)


class _NodeCollector(Collector):
    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect()
