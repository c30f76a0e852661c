"""A disk that does not come back from a sync: producers are made to wait, and what a node holds for them is bounded."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlake.client import AsyncClient
from raftlake.errors import ErrorCode
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.listener.router import ConnectionLimits
from raftlake.runtime.server import NodeServer
from raftlake.runtime.settings.settings import load_settings
from raftlake.runtime.sockets import bind
from raftlake.wire import produce
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch
from runtime_fakes import LOOPBACK, address_of, connect, run, until

MIB = 1 << 20
OFFERED = 64


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    """A node tunes the garbage collector of its process; give it back."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Disk:
    """os.fdatasync, which waits while it is told to."""

    def __init__(self) -> None:
        self.works = threading.Event()
        self.works.set()
        self._sync = os.fdatasync

    def fdatasync(self, descriptor: int) -> None:
        self.works.wait()
        self._sync(descriptor)


def test_a_stuck_sync_stops_the_reading_of_producers_until_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    format_data_dir(tmp_path, 1, "c")
    disk = Disk()
    monkeypatch.setattr("os.fdatasync", disk.fdatasync)
    with bind(LOOPBACK, "x") as first, bind(LOOPBACK, "x") as second:
        listener, http = address_of(first), address_of(second)
    given = ["node.id=1", f"quorum.voters=1@{listener}", f"log.dirs={tmp_path}", f"http.listener={http}"]
    records = build_batch([Record(offset=0, timestamp_ms=-1, key=None, value=bytes(MIB))], timestamp_ms=1)

    async def main() -> None:
        server = NodeServer(load_settings(None, overrides=given), asyncio.get_running_loop())
        try:
            await server.start()
            await until(server.node.is_ready)
            async with AsyncClient(str(listener)) as client:
                await client.create_topic("t")
                # The partition leads then, and nothing of its election waits for the disk.
                await client.append("t", b"x")
            disk.works.clear()
            wire = await connect(listener)
            for number in range(OFFERED):
                parts = [produce.ProducePartition(0, memoryview(records))]
                request = produce.ProduceRequest(-1, 600_000, None, [produce.ProduceTopic("t", None, parts)])
                wire.send(ApiKey.PRODUCE, 9, request, correlation_id=number)
            limit = ConnectionLimits().unanswered_bytes_max
            (listening,) = server._listeners.values()
            await until(lambda: listening._started_bytes > limit - 2 * MIB)
            (connection,) = listening._connections
            await until(lambda: not connection._is_reading)
            assert listening._started_bytes <= limit
            held = len(connection._started)
            assert limit // MIB - 2 <= held < OFFERED
            disk.works.set()
            for number in range(OFFERED):
                correlation_id, answer = await wire.receive(ApiKey.PRODUCE, 9)
                result = answer.topics[0].partitions[0]
                assert (correlation_id, result.error) == (number, ErrorCode.NONE)
            assert listening._started_bytes == 0
            wire.close()
        finally:
            disk.works.set()
            server.close()

    run(main())
