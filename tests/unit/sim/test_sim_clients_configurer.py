"""The client that changes configs: what it gets to see in a quiet run, and what it takes for a broken promise."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from raftlake.replica.configs.in_force import InForce, in_force
from raftlake.replica.hosting import hosting
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.partition.partition import Partition
from raftlake.sim.clients import configurer as configurer_module
from raftlake.sim.clients.configurer import ANSWERED, OBEYED, Configurer
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation
from raftlake.wire.batch_header import parse_header

QUIET = Settings(
    seed=3, safety_ms=15_000, producers=3, readers=1, configurers=1, think_ms_mean=50, segment_bytes=300, retention_bytes=600
)


def test_configs_change_and_are_obeyed_while_others_write_and_read() -> None:
    cluster = Cluster(QUIET)
    outcome = cluster.run()
    assert outcome.covered["configs changed"] > 20 and outcome.covered["configs obeyed"] > 10
    (configurer,) = [client for client in cluster.clients if isinstance(client, Configurer)]
    assert set(configurer._answered) == {"segment.bytes", "segment.ms", "max.message.bytes", "retention.bytes", "retention.ms"}
    kept = [replica for replica in cluster.replicas() if replica.group.topic == "kept"]
    assert len(kept) == 3 and all(replica.log.start_offset == 0 < replica.log.end_offset for replica in kept)


def test_some_seeds_have_one() -> None:
    drawn = [Settings.draw(seed) for seed in range(60)]
    assert 4 < sum(settings.configurers for settings in drawn) < 25
    assert any(settings.changes_retention for settings in drawn)
    assert all(settings.trims for settings in drawn if settings.changes_retention)
    assert not any(settings.changes_retention for settings in drawn if settings.theme)


def broken(patch: pytest.MonkeyPatch, where: Any, name: str, instead: Any) -> str:
    patch.setattr(where, name, instead)
    with pytest.raises(Violation) as caught:
        Cluster(replace(QUIET, liveness_ms=10_000)).run()
    return str(caught.value)


def test_a_limit_that_is_not_obeyed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OBEYED in broken(
        monkeypatch, importlib.import_module("raftlake.replica.apis.produce"), "_fault_of_size", lambda *_: None
    )


def test_a_time_that_is_not_stamped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    obey = Partition.obey

    def timeless(self: Partition, asked: InForce) -> None:
        obey(self, replace(asked, stamps_time=False))

    assert "has no time of its leader" in broken(monkeypatch, Partition, "obey", timeless)


def test_a_retention_that_is_not_the_topics_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_node(configs: Mapping[str, str], node: Any) -> InForce:
        return replace(in_force(configs, node), retention_bytes=node.retention_bytes, local_bytes=node.retention_bytes)

    assert OBEYED in broken(monkeypatch, hosting, "in_force", of_node)


def test_a_change_that_groups_do_not_hear_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OBEYED in broken(monkeypatch, Hosting, "obey", lambda *_: None)


def test_an_answer_that_came_to_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(QUIET)
    cluster.run()
    (configurer,) = [client for client in cluster.clients if isinstance(client, Configurer)]
    configurer._answered["segment.ms"] = "77"
    configurer._unknown["segment.ms"] = set()
    with pytest.raises(Violation, match=ANSWERED):
        configurer.check(cluster._running())


def test_the_last_look_at_a_damaged_batch_ends_and_blames_nobody() -> None:
    """Seed 1100006656: a flipped bit of a base offset led the look back to where it came from, for ever."""
    cluster = Cluster(QUIET)
    cluster.run()
    (configurer,) = [client for client in cluster.clients if isinstance(client, Configurer)]
    group = next(replica.group for replica in cluster.replicas() if replica.group.topic == "kept")
    node = next(iter(cluster._running()))
    log = node.partitions[group].log
    batch = next(batch for batch in log.image.batches if batch.base & 0x10)
    read, reads = log.read, itertools.count(1)

    def counted(*asked: Any) -> bytes:
        assert next(reads) <= len(log.image.batches) + 1, "it reads in circles"
        return read(*asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "read", counted)
        for byte in range(len(batch.data)):
            reads = itertools.count(1)
            log.decay.damaged = {(batch.base, batch.epoch): byte}
            configurer.check([node])


def test_the_last_look_reads_batch_after_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest batch of the kept topic is found as soon as it is a byte too large, wherever it stands."""
    cluster = Cluster(QUIET)
    cluster.run()
    (configurer,) = [client for client in cluster.clients if isinstance(client, Configurer)]
    group = next(replica.group for replica in cluster.replicas() if replica.group.topic == "kept")
    node = next(iter(cluster._running()))
    log = node.partitions[group].log
    headers = [parse_header(batch.data) for batch in log.image.batches]
    largest = max((header for header in headers if not header.is_control), key=lambda header: (header.size, header.base_offset))
    assert largest.base_offset > headers[1].base_offset
    read = log.read
    monkeypatch.setattr(log, "read", lambda start, limit, _: read(start, limit, 1))
    monkeypatch.setattr(configurer_module, "BATCH_BYTES_MAX", largest.size)
    configurer.check([node])
    monkeypatch.setattr(configurer_module, "BATCH_BYTES_MAX", largest.size - 1)
    with pytest.raises(Violation, match=OBEYED):
        configurer.check([node])
