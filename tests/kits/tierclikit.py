"""`raftlake tier` as a test calls it, and the key space of a quorum that it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from contract.tier_contract import GROUP
from raftlake.cli import tier as cli_tier
from raftlake.client.types import KvEntry, KvPage
from raftlake.kv.keys import CLUSTER_KEY, node_key, tier_key, tier_segment_key, topic_key
from raftlake.ports.tier import RemoteSegment
from raftlake.tier.entries import PartitionKeys, Tiered, encode_segment, encode_tiered
from raftlake.wire.ids import id_to_text

TOPIC_ID = id_to_text(GROUP.topic_id)
OTHER_ID = id_to_text(bytes([7] * 16))
CLUSTER_ID = id_to_text(bytes([1] * 16))


class Keys:
    """The part of a client that the commands use: a key space, in pages of two keys."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {CLUSTER_KEY: json.dumps({"cluster_id": CLUSTER_ID}).encode()}
        self.kv = self

    def get(self, key: str) -> KvEntry | None:
        value = self.content.get(key)
        return None if value is None else KvEntry(key=key, version=1, size=len(value), value=value)

    def list(self, prefix: str, *, after: str | None, limit: int, values: bool) -> KvPage:
        assert values and limit >= 2
        keys = [key for key in sorted(self.content) if key.startswith(prefix) and (after is None or key > after)]
        entries = tuple(entry for key in keys[:2] if (entry := self.get(key)) is not None)
        return KvPage(entries=entries, more=len(keys) > 2, version=9)

    def put_topic(self, name: str, topic_id: str, partitions: int) -> None:
        self.content[topic_key(name)] = json.dumps({"id": topic_id, "partitions": partitions, "configs": {}}).encode()

    def put_node(self, node_id: int, http: tuple[str, int] | None) -> None:
        fields: dict[str, Any] = {"host": "127.0.0.1", "port": 9092}
        if http is not None:
            fields |= {"http_host": http[0], "http_port": http[1]}
        self.content[node_key(node_id)] = json.dumps(fields).encode()

    def put_tier(self, topic_id: str, partition: int, keys: PartitionKeys) -> None:
        assert isinstance(keys.tiered, Tiered)
        self.content[tier_key(topic_id, partition)] = encode_tiered(keys.tiered)
        for base, segment in keys.segments.items():
            assert isinstance(segment, RemoteSegment)
            self.content[tier_segment_key(topic_id, partition, base)] = encode_segment(segment)


def answering_keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    """An empty key space that the commands ask, whatever server they are given."""
    keys = Keys()

    @contextmanager
    def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Any]:
        yield keys

    monkeypatch.setattr(cli_tier, "connect", connect)
    monkeypatch.delenv("RAFTLAKE_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.delenv("RAFTLAKE_BOOTSTRAP_SERVERS", raising=False)
    return keys


def run(*arguments: str, code: int = 0) -> str:
    """Its standard output."""
    outcome = CliRunner().invoke(cli_tier.app, arguments)
    assert outcome.exit_code == code, (outcome.output, outcome.exception)
    return outcome.stdout


def failed(*arguments: str) -> tuple[str, BaseException | None]:
    """Its output and its error."""
    outcome = CliRunner().invoke(cli_tier.app, arguments)
    assert outcome.exit_code == 1
    return outcome.stdout, outcome.exception
