"""Requests of a few kilobytes that would decompress to gigabytes: refused for what they hold, and nobody is kept waiting."""

from __future__ import annotations

import pytest
from forgekit import forgers
from pulsekit import require_a_free_loop
from siegekit import Siege

from raftlake import Client
from raftlake.errors import ErrorCode
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

pytestmark = pytest.mark.process

BATCHES = 30
CONTENT_BYTES = 60 << 20


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_thirty_batches_that_hold_sixty_megabytes_each(siege: Siege, codec: str) -> None:
    topic = f"bombs-{codec}"
    with Client(siege.quorum.bootstrap_servers) as client:
        client.create_topic(topic)
    bomb = build_batch([Record(offset=0, key=None, value=bytes(CONTENT_BYTES))], timestamp_ms=1, compression=codec)
    request = ProduceRequest(-1, 5_000, None, [ProduceTopic(topic, None, [ProducePartition(0, bytearray(bomb * BATCHES))])])

    def attack() -> None:
        with forgers(siege, 77) as found:
            for forger in found:
                answer = forger.ask(ApiKey.PRODUCE, 12, request)
                errors = {part.error for each in answer.topics for part in each.partitions}
                assert errors <= {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER}

    def many_attacks() -> None:
        for _ in range(5):
            attack()

    what = f"{BATCHES} batches of {len(bomb)} bytes that hold 60 MiB each"
    with siege.attack(what):
        siege.depose_nobody(lambda: require_a_free_loop(siege, many_attacks), what)
    # What compresses as well and is honest goes on.
    with Client(siege.quorum.bootstrap_servers, compression=codec) as client:
        client.append(topic, bytes(4 << 20), partition=0)
