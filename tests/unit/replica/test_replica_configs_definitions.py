"""The table of topic configs: what is accepted, what a refusal says, and which value counts."""

from __future__ import annotations

import pytest

from configkit import around
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.replica.configs.definitions import DEFINITIONS, LONG_MAX, ConfigType, checked, value_in_force


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("cleanup.policy", "delete", "delete"),
        ("cleanup.policy", " delete , delete,", None),
        ("cleanup.policy", " delete ,", "delete"),
        ("cleanup.policy", "compact", "compact"),
        ("cleanup.policy", " delete,compact", "compact,delete"),
        ("cleanup.policy", "compact,compact", None),
        ("cleanup.policy", "compact,keep", None),
        ("min.cleanable.dirty.ratio", " 0.25 ", "0.25"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "0", "0.0"),
        ("min.cleanable.dirty.ratio", "1.01", None),
        ("min.cleanable.dirty.ratio", "-0.1", None),
        ("min.cleanable.dirty.ratio", "nan", None),
        ("min.cleanable.dirty.ratio", "1e-3", None),
        ("min.cleanable.dirty.ratio", "", None),
        ("delete.retention.ms", "0", "0"),
        ("delete.retention.ms", "-1", None),
        ("min.compaction.lag.ms", "0", "0"),
        ("min.compaction.lag.ms", "9223372036854775807", "9223372036854775807"),
        ("min.compaction.lag.ms", "-1", None),
        ("cleanup.policy", "", None),
        ("compression.type", "producer", "producer"),
        ("compression.type", "gzip", None),
        ("compression.type", "uncompressed", None),
        ("local.retention.ms", "-2", "-2"),
        ("local.retention.ms", "-3", None),
        ("max.message.bytes", "0", "0"),
        ("max.message.bytes", "-1", None),
        ("max.message.bytes", "8388608", "8388608"),
        ("max.message.bytes", "8388609", None),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("message.timestamp.type", "CreateTime", "CreateTime"),
        ("message.timestamp.type", "logappendtime", None),
        ("min.insync.replicas", "1", "1"),
        ("min.insync.replicas", "2", "2"),
        ("min.insync.replicas", "3", None),
        ("min.insync.replicas", "0", None),
        ("retention.bytes", "-1", "-1"),
        ("retention.bytes", "-2", None),
        ("retention.ms", " +5 ", "5"),
        ("retention.ms", "007", "7"),
        ("retention.ms", "5.0", None),
        ("retention.ms", "5s", None),
        ("retention.ms", "", None),
        ("retention.ms", "\u0665", None),
        ("retention.ms", "1_000", None),
        ("retention.ms", str(LONG_MAX), str(LONG_MAX)),
        ("retention.ms", str(LONG_MAX + 1), None),
        ("retention.ms", "9" * 100_000, None),
        ("segment.bytes", "16384", "16384"),
        ("segment.bytes", "16383", None),
        ("segment.bytes", str(2**31 - 1), str(2**31 - 1)),
        ("segment.bytes", str(2**31), None),
        ("segment.ms", "1", "1"),
        ("segment.ms", "0", None),
    ],
)
def test_what_a_topic_may_say(name: str, value: str, stored: str | None) -> None:
    if stored is not None:
        assert checked(name, value, around()) == stored
        return
    with pytest.raises(RequestRejected, match="accepted is ") as caught:
        checked(name, value, around())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert f"{name}={value[:50]}" in caught.value.message and len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cleanup.policy", "keep", "accepted is delete, compact, or compact,delete"),
        ("min.cleanable.dirty.ratio", "2", "accepted is a number from 0 to 1"),
        ("compression.type", "zstd", "compress nothing anew"),
        ("min.insync.replicas", "3", "from 1 to 2, the majority"),
        ("max.message.bytes", "8388609", "from 0 to 8388608, which is message.max.bytes of node.properties"),
        ("segment.bytes", "1", "from 16384 to 2147483647"),
    ],
)
def test_a_refusal_names_the_reason_and_the_range(name: str, value: str, why: str) -> None:
    with pytest.raises(RequestRejected, match=f"topic config {name}={value}: .*{why}"):
        checked(name, value, around())


@pytest.mark.parametrize("name", ["color", "", "retention", "Retention.ms", "log.retention.ms", "flush.ms", "x" * 10_000])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(RequestRejected, match="not known here; accepted are cleanup") as caught:
        checked(name, "1", around())
    assert caught.value.code is ErrorCode.INVALID_CONFIG and name[:90] in caught.value.message
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("name", ["remote.storage.enable", "raftlake.tier.table.uri"])
def test_what_follows_the_nodes_cannot_be_set(name: str) -> None:
    with pytest.raises(RequestRejected, match=f"{name} cannot be set: it follows tier.uri of node.properties"):
        checked(name, "true", around())


def test_the_node_bounds_what_a_topic_may_say() -> None:
    small = around(message_bytes_max=2_000, majority=3)
    assert checked("max.message.bytes", "2000", small) == "2000" and checked("min.insync.replicas", "3", small) == "3"
    with pytest.raises(RequestRejected, match="from 0 to 2000"):
        checked("max.message.bytes", "2001", small)


@pytest.mark.parametrize(
    ("name", "setting", "of_node"),
    [
        ("local.retention.bytes", "local_retention_bytes", 7),
        ("local.retention.ms", "local_retention_ms", 7),
        ("max.message.bytes", "message_bytes_max", 7_000),
        ("retention.bytes", "retention_bytes", 7),
        ("retention.ms", "retention_ms", 7),
        ("segment.bytes", "segment_bytes", 70_000),
    ],
)
def test_a_default_comes_from_the_nodes_setting(name: str, setting: str, of_node: int) -> None:
    node = around(**{setting: of_node})
    assert value_in_force(name, {}, node) == DEFINITIONS[name].default(node) == str(of_node)
    assert DEFINITIONS[name].built_in(node) == DEFINITIONS[name].default(around()) != str(of_node)
    assert DEFINITIONS[name].setting is not None


def test_a_value_that_is_not_accepted_here_counts_as_not_set() -> None:
    """Another release took it, or a node with a larger limit."""
    node = around(message_bytes_max=2_000)
    assert value_in_force("max.message.bytes", {"max.message.bytes": "5000"}, node) == "2000"
    assert value_in_force("retention.ms", {"retention.ms": "soon"}, node) == "-1"
    assert value_in_force("retention.ms", {"retention.ms": "5"}, node) == "5"


def test_each_config_is_documented_and_its_default_is_accepted() -> None:
    assert list(DEFINITIONS) == sorted(DEFINITIONS)
    for name, definition in DEFINITIONS.items():
        assert definition.name == name and definition.documentation.endswith(".") and definition.type in ConfigType
        assert checked(name, definition.default(around()), around()) == definition.default(around())
