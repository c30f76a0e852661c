"""What a node does for a topic: its configs over the node's settings."""

from __future__ import annotations

import pytest

from configkit import around
from raftlake.replica.configs.in_force import NEVER_MS, CompactionRules, InForce, in_force


def of(configs: dict[str, str], **settings: int) -> InForce:
    return in_force(configs, around(**settings).node)


def test_a_topic_that_says_nothing_follows_the_node() -> None:
    found = of({}, retention_bytes=9, retention_ms=8, local_retention_bytes=7, segment_bytes=50_000, message_bytes_max=5_000)
    assert found == InForce(
        compaction=None,
        deletes=True,
        retention_bytes=9,
        retention_ms=8,
        local_bytes=7,
        local_ms=8,
        segment_bytes=50_000,
        segment_ms=NEVER_MS,
        message_bytes_max=5_000,
        stamps_time=False,
    )


def test_a_topic_says_all_of_it_over_the_node() -> None:
    configs = {
        "retention.bytes": "90",
        "retention.ms": "80",
        "local.retention.bytes": "70",
        "local.retention.ms": "60",
        "segment.bytes": "60000",
        "segment.ms": "50",
        "max.message.bytes": "40",
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.25",
        "delete.retention.ms": "30",
        "min.compaction.lag.ms": "20",
        "message.timestamp.type": "LogAppendTime",
    }
    assert of(configs, retention_bytes=9, retention_ms=8, message_bytes_max=5_000) == InForce(
        compaction=CompactionRules(dirty_ratio=0.25, delete_retention_ms=30, lag_ms=20),
        deletes=True,
        retention_bytes=90,
        retention_ms=80,
        local_bytes=70,
        local_ms=60,
        segment_bytes=60_000,
        segment_ms=50,
        message_bytes_max=40,
        stamps_time=True,
    )


@pytest.mark.parametrize(
    ("whole", "local", "kept"),
    [
        (100, -2, 100),
        (-1, -2, -1),
        (-1, 5, 5),
        (-1, -1, -1),
        (100, 5, 5),
        (100, 100, 100),
        (100, 101, 100),
        (100, -1, 100),
        (0, 5, 0),
    ],
)
def test_local_disks_keep_no_more_than_all(whole: int, local: int, kept: int) -> None:
    """Whoever says it, topic or node: the two may fit one another no longer."""
    for name, setting in (("bytes", "local_bytes"), ("ms", "local_ms")):
        of_node = {f"local_retention_{name}": local}
        assert getattr(of({f"retention.{name}": str(whole)}, **of_node), setting) == kept
        of_node = {f"retention_{name}": whole}
        assert getattr(of({f"local.retention.{name}": str(local)}, **of_node), setting) == kept


@pytest.mark.parametrize("junk", ["", "x", "-9", "9" * 40, "1.5", "\u0665"])
def test_junk_counts_as_not_set(junk: str) -> None:
    names = ("retention.ms", "retention.bytes", "local.retention.ms", "segment.bytes", "segment.ms", "max.message.bytes")
    assert of(dict.fromkeys((*names, "message.timestamp.type", "color"), junk), retention_ms=8) == of({}, retention_ms=8)


def test_a_limit_above_the_nodes_is_the_nodes() -> None:
    assert of({"max.message.bytes": "6000"}, message_bytes_max=5_000).message_bytes_max == 5_000


def test_what_is_only_compacted_is_not_deleted() -> None:
    found = of({"cleanup.policy": "compact"}, retention_ms=8)
    assert not found.deletes
    assert found.compaction == CompactionRules(dirty_ratio=0.5, delete_retention_ms=86_400_000, lag_ms=0)
