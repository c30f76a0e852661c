"""Room for large frames: who gets some, who waits, and that a connection neither keeps it nor waits for ever."""

from __future__ import annotations

import asyncio

from raftlake.runtime.listener.frame_room import FrameRoom
from raftlake.runtime.listener.router import ConnectionLimits
from raftlake.runtime.peers.codec import peer_client_id
from raftlake.wire.api import ApiKey, encode_request
from raftlake.wire.framing import STAGING_BYTES
from runtime_fakes import FakeNode, connect, find, found, produce_of, run, served, settle, until

MIB = 1 << 20


class Asker:
    """Waits for room for one frame."""

    def __init__(self, room: FrameRoom, size: int) -> None:
        self.room = room
        self.size = size
        self.is_in = False

    def start_waiting(self) -> None:
        self.is_in = self.room.take(self, self.size, is_peer=False)


def test_a_frame_gets_half_of_what_is_free_so_that_smaller_ones_always_find_room() -> None:
    room = FrameRoom(1000)
    askers = [Asker(room, size) for size in (600, 300, 200, 200, 150, 70)]
    for asker in askers:
        asker.start_waiting()
    # Alone even the largest gets in; of 400 then 200, of 200 then 100.
    assert [asker.is_in for asker in askers] == [True, False, True, False, False, True]
    assert room.held == 870 and room.is_short


def test_who_waits_is_let_in_by_turns_and_smaller_ones_need_not_wait_for_larger_ones() -> None:
    room = FrameRoom(1000)
    first, large, small, late = [Asker(room, size) for size in (900, 600, 200, 200)]
    for asker in (first, large, small, late):
        asker.start_waiting()
    room.leave(900)
    assert large.is_in and room.held == 800 and room.is_short
    assert (small.is_in, late.is_in) == (True, False)
    room.leave(600)
    assert late.is_in and not room.is_short and room.held == 400


def test_a_peer_never_waits_and_who_is_gone_is_not_let_in() -> None:
    room = FrameRoom(1000)
    assert room.take(Asker(room, 900), 900, is_peer=False)
    gone = Asker(room, 500)
    gone.start_waiting()
    assert room.take(Asker(room, 500), 500, is_peer=True) and room.held == 1400
    room.forget(gone)
    room.leave(1400)
    assert not gone.is_in and room.held == 0


def large(size: int, client_id: str = "t", correlation_id: int = 1) -> bytes:
    return b"".join(encode_request(ApiKey.PRODUCE, 9, correlation_id, client_id, produce_of(bytes(size))))


def test_connections_together_hold_no_more_than_there_is_room_for() -> None:
    """Eight begin 3 MiB each and send nearly all of it; another one's requests are served meanwhile."""

    async def main() -> None:
        node = FakeNode(on_call=lambda call: call.reply(found()) if call.header.api_key == ApiKey.FIND_QUORUM else None)
        room = FrameRoom(10 * MIB)
        async with served(node, room=room) as on:
            hostile = [await connect(on.address) for _ in range(8)]
            for wire in hostile:
                wire.writer.write(large(3 * MIB)[:-100_000])
            await until(lambda: room.is_short)
            await settle()
            held = sum(len(each._decoder._frame or b"") for each in on.listener._connections)
            assert held <= room.held + 8 * STAGING_BYTES and room.held <= 10 * MIB
            assert sum(each._room > 0 for each in on.listener._connections) == 2
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            await wire.receive(ApiKey.FIND_QUORUM, 0)
            wire.writer.write(large(MIB // 2))
            await until(lambda: sum(call.header.api_key == ApiKey.PRODUCE for call in node.calls) == 1)
            # They come to an end one after the other, and the room is empty then.
            for each in hostile:
                each.writer.write(large(3 * MIB)[-100_000:])
            await until(lambda: sum(call.header.api_key == ApiKey.PRODUCE for call in node.calls) == 9)
            assert room.held == 0 and not room.is_short
            for each in [wire, *hostile]:
                each.close()

    run(main())


def test_a_peers_large_first_request_is_read_at_once() -> None:
    async def main() -> None:
        room = FrameRoom(2 * MIB)
        async with served(room=room) as on:
            client, peer = await connect(on.address), await connect(on.address)
            client.writer.write(large(2 * MIB)[:MIB])
            await until(lambda: room.held > 0)
            peer.writer.write(large(2 * MIB, peer_client_id(2)))
            await until(lambda: len(on.node.calls) == 1)
            for wire in (client, peer):
                wire.writer.transport.abort()
            await until(lambda: on.listener.connection_count == 0)
            assert room.held == 0

    run(main())


def test_who_stalls_or_drips_amid_a_large_frame_is_closed_while_others_wait_and_they_are_not() -> None:
    async def main() -> None:
        room = FrameRoom(8 * MIB)
        async with served(room=room, limits=ConnectionLimits(stall_seconds=30)) as on:
            holder, waiting = await connect(on.address), await connect(on.address)
            holder.writer.write(large(6 * MIB)[:MIB])
            await until(lambda: room.held > 0)
            waiting.writer.write(large(4 * MIB)[: 2 * MIB])
            await until(lambda: room.is_short)
            now = asyncio.get_running_loop().time()
            (of_holder,) = [each for each in on.listener._connections if each._room]
            # It was heard of just now, so it does not stall.
            of_holder._heard_at = now + 35
            on.listener.end_overdue(now + 35)
            assert on.listener.connection_count == 2
            of_holder._heard_at = now + 40
            on.listener.end_overdue(now + 40)
            assert await holder.is_closed()
            await until(lambda: not room.is_short)
            assert room.held > 4 * MIB and on.listener.connection_count == 1
            # Nobody waits for the other one: it may take its time.
            (left,) = on.listener._connections
            left._heard_at = now + 300
            assert left.fault_of(now + 300) is None
            for wire in (holder, waiting):
                wire.writer.transport.abort()
            await until(lambda: on.listener.connection_count == 0)
            assert room.held == 0

    run(main())


def test_a_connection_that_is_closed_with_answers_on_their_way_is_not_kept_for_ever() -> None:
    """A client that takes no answers breaks the protocol: what is still to be sent would keep it."""
    answer = found("x" * 20_000)

    async def main() -> None:
        node = FakeNode(on_call=lambda call: call.reply(answer))
        async with served(node, limits=ConnectionLimits(unsent_bytes_max=10_000_000, stall_seconds=30)) as on:
            greedy = await connect(on.address)
            greedy.reader._transport.pause_reading()  # type: ignore[attr-defined]
            began = asyncio.get_running_loop().time()
            for count in range(20, 401, 20):
                for _ in range(20):
                    greedy.send(ApiKey.FIND_QUORUM, 0, find())
                await until(lambda count=count: len(node.calls) == count)  # type: ignore[misc]
            greedy.writer.write(b"\xff" * 8)
            await settle()
            on.listener.end_overdue(began + 25)
            assert on.listener.connection_count == 1
            on.listener.end_overdue(asyncio.get_running_loop().time() + 31)
            await until(lambda: on.listener.connection_count == 0)
            greedy.writer.transport.abort()

    run(main())
