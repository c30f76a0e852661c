"""Simulated clients of a compacted topic: what they do in a quiet run, and what they find broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raftlake.replica.compaction import compactor as compactor_module
from raftlake.sim.clients.keyed import UNIQUE, KeyedConfigurer, KeyedTopic
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.histories.keyed import LAST_VALUES
from raftlake.sim.invariants import Violation
from raftlake.wire.compaction import KeyMap, Rewriter

QUIET = Settings(
    seed=3,
    safety_ms=8_000,
    producers=1,
    readers=1,
    kv_clients=1,
    think_ms_mean=50,
    segment_bytes=300,
    keyed_producers=4,
    keyed_readers=2,
    keyed_keys=5,
    keyed_dirty_percent=10,
    delete_retention_ms=300,
    cleaner_backoff_ms=100,
)


def test_a_topic_is_compacted_and_read_from_end_to_end() -> None:
    cluster = Cluster(QUIET)
    outcome = cluster.run()
    assert outcome.covered["logs compacted"] > 30 and outcome.covered["records removed by compaction"] > 200
    assert outcome.covered["full reads of a compacted topic"] > 10
    assert {read.reader[-2] for read in cluster.keyed.reads} == {"0", "1"}
    assert all(client.completed for client in cluster.clients)
    assert any(each.outcome is True for each in cluster.keyed.transactions)
    # Each replica did it by itself.
    for machine in cluster.machines.values():
        log = machine.disk.logs[cluster.keyed.group(0)]
        held = sum(len(batch.data) for batch in log.batches)
        assert held < sum(map(len, cluster._keyed_batches())) / 2 and log.compacted_until


def test_some_seeds_have_a_compacted_topic_of_each_kind() -> None:
    found = [settings for settings in map(Settings.draw, range(240)) if settings.keyed_producers]
    assert 40 < len(found) < 80
    for name in ("keyed_configurers", "keyed_deleters", "keyed_trims", "compaction_lag_ms"):
        assert {bool(getattr(settings, name)) for settings in found} == {False, True}
    assert {settings.cleaner_keys_max for settings in found} == {1, 3, 1_000_000}


def test_configs_of_the_topic_change_and_records_are_deleted_meanwhile() -> None:
    settings = replace(QUIET, keyed_configurers=1, keyed_deleters=1, keyed_trims=1)
    cluster = Cluster(settings)
    outcome = cluster.run()
    assert outcome.covered["configs changed"] > 10 and outcome.covered["records deleted"] > 5
    (configurer,) = [client for client in cluster.clients if isinstance(client, KeyedConfigurer)]
    assert "compact,delete" in configurer._changes["cleanup.policy"]
    starts = {int(machine.disk.logs[cluster.keyed.group(0)].start_offset) for machine in cluster.machines.values()}
    assert min(starts) > 0


def test_a_record_follows_from_its_value() -> None:
    topic = KeyedTopic(replace(QUIET, keyed_keys=3), lambda group: 0)
    records = [topic.record(str(number).encode()) for number in range(200)]
    assert records[:9] == [topic.record(str(number).encode()) for number in range(9)]
    assert {record.key for record in records} == {b"key0", b"key1", b"key2"}
    deleted = [record for record in records if record.value is None]
    assert 30 < len(deleted) < 70 and all(record.headers[0][0] == UNIQUE for record in records)
    assert {topic.compression(str(number).encode()) for number in range(200)} == {"none", "gzip", "lz4", "zstd"}
    assert topic.configs()["cleanup.policy"] == "compact" and "segment.bytes" not in topic.configs()
    large = KeyedTopic(replace(QUIET, segment_bytes=64 * 1024, keyed_trims=1), lambda group: 0).configs()
    assert large["cleanup.policy"] == "compact,delete" and int(large["segment.bytes"]) > 300


def test_a_reader_of_all_that_was_shown_too_little_is_found() -> None:
    cluster = Cluster(QUIET)
    cluster.run()
    reads = [read for read in cluster.keyed.reads if len(read.records) > 3]
    judged = 0
    for read in reads[:5]:
        shown = list(read.records)
        for place in range(len(shown)):
            read.records = shown[:place] + shown[place + 1 :]
            try:
                cluster.keyed.check(cluster._keyed_batches(), cluster._keyed_replicas())
            except Violation:
                judged += 1
        read.records = shown
    assert judged > 5


def broken(patch: pytest.MonkeyPatch, where: Any, name: str, instead: Any, settings: Settings = QUIET) -> str:
    patch.setattr(where, name, instead)
    with pytest.raises(Violation) as caught:
        Cluster(replace(settings, liveness_ms=10_000)).run()
    return str(caught.value)


def test_compaction_that_keeps_the_oldest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    add = KeyMap.newest

    def oldest(self: KeyMap, keys: Any) -> Any:
        return [None if found is None else found + 1 for found in add(self, keys)]

    assert "newest of its key" in broken(monkeypatch, KeyMap, "newest", oldest)


def test_compaction_of_aborted_records_into_the_map_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor_module, "tuple", lambda found=(): (), raising=False)
    with pytest.raises(Violation, match=r"newest of its key|is left below"):
        Cluster(QUIET).run()


def test_a_batch_that_is_not_rewritten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told = broken(monkeypatch, Rewriter, "rewrite", lambda self, buffer, header: [bytes(buffer)])
    assert "leaves one record of each key" in told


def test_replicas_that_lose_a_value_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the judge of each install the one of the end finds it."""
    monkeypatch.setattr("raftlake.sim.invariants.compaction_rules._Judge.judge", lambda self, before, after: None)
    monkeypatch.setattr("raftlake.sim.invariants.compaction_rules.CompactionRules.on_pass_ended", lambda *_: None)
    kept = Rewriter._kept

    def some(self: Rewriter, columns: Any, header: Any) -> list[int]:
        found = kept(self, columns, header)
        return found[1:] if header.base_offset % 5 == 0 else found

    assert LAST_VALUES in broken(monkeypatch, Rewriter, "_kept", some)
