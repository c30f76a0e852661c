"""One offset space: where a partition begins, and its leader epochs, from the quorum's keys and the local log together."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from copierkit import Keys
from enginekit import ORDERS, Ground
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import INCARNATION_KEY, tier_key
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.replica.apis.offsets import Special, _find_end
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.remote_log import NOWHERE, RemoteLog
from raftlake.tier.entries import Tiered, encode_tiered
from raftlake.wire.ids import id_to_text

KEY = tier_key(id_to_text(ORDERS.topic_id), 0)


class World:
    """A partition whose local log begins at 6 in epoch 5, and ends with epoch 7 from 8 on."""

    def __init__(self, *, is_on: bool = True) -> None:
        self.ground, self.keys = Ground(), Keys()
        self.partition: Partition = self.ground.lead(ORDERS)
        history = self.partition.core.history
        history.reset(OffsetAndEpoch(Offset(6), Epoch(5)))
        history.assign(Epoch(5), Offset(6))
        history.assign(Epoch(7), Offset(8))
        self.partition.core.log_end = Offset(9)
        log: Any = _Log()
        self.partition.log = log
        keys: Any = self.keys
        self.remote = RemoteLog(self.ground.engine, keys, is_on=is_on)
        # There is no metadata log that might tell of deleted records.
        self.remote._knows_deletions = True

    def say(self, value: bytes) -> None:
        self.keys.apply(Txn((), (Put(KEY, value),)))

    def copied(self, start: int, end: int, *epochs: tuple[int, int]) -> None:
        entries = tuple((Epoch(epoch), Offset(offset)) for epoch, offset in epochs)
        self.say(encode_tiered(Tiered(start_offset=Offset(start), end_offset=Offset(end), epochs=entries)))


class _Log:
    start_offset = Offset(6)
    epochs = ((Epoch(5), Offset(6)), (Epoch(7), Offset(8)))


def test_a_partition_begins_where_its_table_begins() -> None:
    world = World()
    assert world.remote.start_offset(world.partition) == 6
    world.copied(2, 7, (5, 2))
    assert world.remote.start_offset(world.partition) == 2
    world.copied(4, 8, (5, 4))
    assert world.remote.start_offset(world.partition) == 4, "a later version of the key"
    world.copied(7, 8, (5, 7))
    assert world.remote.start_offset(world.partition) == 7, "retention has ended what a local segment still has"


@pytest.mark.parametrize(("end", "start"), [(5, 6), (6, 2), (7, 2)])
def test_copies_that_do_not_reach_the_local_log_do_not_count(end: int, start: int) -> None:
    world = World()
    world.copied(2, end, (5, 2))
    assert world.remote.start_offset(world.partition) == start


def test_a_table_from_before_an_unclean_election_says_nothing_of_the_local_start() -> None:
    """Until it is taken over: the log may be another one, and end below the start of the table."""
    world = World()
    world.copied(7, 8, (5, 7))
    recovered = {"directoryId": id_to_text(b"r" * 16), "nodeId": 1, "epoch": 9}
    world.keys.apply(Txn((), (Put(INCARNATION_KEY, json.dumps(recovered).encode()),)))
    assert world.remote.start_offset(world.partition) == 6


def find(world: World, which: Special) -> tuple[int, int, int]:
    found = _find_end(world.remote, world.partition, which, world.partition.high_watermark)
    return found.error, found.offset, found.epoch


def test_the_special_offsets_over_table_and_local_log() -> None:
    world = World()
    world.copied(2, 7, (3, 2), (5, 4))
    assert find(world, Special.EARLIEST) == (0, 2, 3)
    assert find(world, Special.EARLIEST_LOCAL) == (0, 6, 5)
    assert find(world, Special.LATEST_TIERED) == (0, 6, 5), "the last copied offset itself"
    assert find(world, Special.EARLIEST_PENDING_UPLOAD) == (0, 7, 5)
    world.copied(2, 8, (3, 2), (5, 4))
    assert find(world, Special.LATEST_TIERED) == (0, 7, 5)
    assert find(world, Special.EARLIEST_PENDING_UPLOAD) == (0, 8, 7), "the first record of the next epoch"
    world.copied(8, 9, (7, 8))
    assert find(world, Special.EARLIEST) == find(world, Special.EARLIEST_LOCAL) == (0, 8, 7), "what retention has ended is gone"


def test_the_special_offsets_where_nothing_is_copied() -> None:
    world = World()
    for _ in range(2):
        assert find(world, Special.EARLIEST) == find(world, Special.EARLIEST_LOCAL) == (0, 6, 5)
        assert find(world, Special.LATEST_TIERED) == (0, -1, -1)
        assert find(world, Special.EARLIEST_PENDING_UPLOAD) == (0, 6, 5)
        world.copied(6, 6)
    world = World(is_on=False)
    world.copied(2, 7, (3, 2), (5, 4))
    assert find(world, Special.EARLIEST) == find(world, Special.EARLIEST_LOCAL) == (0, 6, 5)
    assert find(world, Special.LATEST_TIERED) == find(world, Special.EARLIEST_PENDING_UPLOAD) == (0, -1, -1)


def test_what_the_table_has_is_not_told_before_it_is_known() -> None:
    """The key may come yet."""
    world = World()
    world.keys.is_current = False
    for which in (Special.EARLIEST, Special.LATEST_TIERED, Special.EARLIEST_PENDING_UPLOAD):
        assert find(world, which) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)
    assert find(world, Special.EARLIEST_LOCAL) == (0, 6, 5)
    assert find(world, Special.LATEST)[0] == 0
    world.copied(2, 7, (3, 2), (5, 4))
    assert find(world, Special.EARLIEST) == (0, 2, 3)


def test_the_epoch_of_a_place() -> None:
    world = World()
    world.copied(2, 7, (3, 2), (5, 4))
    found = [world.remote.epoch_at(world.partition, Offset(offset)) for offset in (1, 2, 3, 4, 7, 8, 20)]
    assert found == [-1, 3, 3, 5, 5, 7, 7]


def test_without_a_tier_or_with_a_spoilt_key_the_local_log_is_all() -> None:
    world = World(is_on=False)
    world.copied(2, 7, (3, 2))
    assert world.remote.tiered(world.partition) is None and world.remote.start_offset(world.partition) == 6
    world = World()
    world.say(b"spoilt")
    assert world.remote.tiered(world.partition) is None
    assert world.remote.epochs(world.partition) == world.partition.log.epochs


@pytest.mark.parametrize(
    ("copied", "epochs"),
    [
        ([], [(5, 6), (7, 8)]),
        ([(3, 2), (4, 4)], [(3, 2), (4, 4), (5, 6), (7, 8)]),
        ([(3, 2), (5, 4)], [(3, 2), (5, 4), (7, 8)]),
        ([(3, 2), (5, 6)], [(3, 2), (5, 6), (7, 8)]),
        ([(5, 2), (7, 8)], [(5, 2), (7, 8)]),
    ],
)
def test_the_epochs_go_on_before_the_local_start(copied: list[tuple[int, int]], epochs: list[tuple[int, int]]) -> None:
    world = World()
    world.copied(2, 9, *copied)
    assert list(world.remote.epochs(world.partition)) == epochs


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(1, NOWHERE), (2, (2, 4)), (3, (2, 4)), (4, (4, 6)), (5, (5, 8)), (6, (5, 8)), (7, (7, 9)), (8, NOWHERE)],
)
def test_an_epoch_ends_where_the_next_one_begins_also_in_the_table(epoch: int, end: tuple[int, int]) -> None:
    world = World()
    world.copied(2, 7, (2, 2), (4, 4), (5, 6))
    found = world.remote.epoch_end(world.partition, Epoch(epoch))
    assert found == NOWHERE if end == NOWHERE else (found.epoch, found.offset) == end


def test_before_the_first_known_epoch_clients_are_told_where_that_one_begins() -> None:
    def told(world: World, epoch: int) -> tuple[int, int]:
        found = world.remote.before_first(world.partition, Epoch(epoch))
        return found.epoch, found.offset

    world = World()
    assert [told(world, epoch) for epoch in (0, 4, 5, 9)] == [(0, 6), (4, 6), (-1, -1), (-1, -1)]
    world.copied(2, 7, (3, 2), (5, 6))
    assert [told(world, epoch) for epoch in (0, 2, 3, 4)] == [(0, 2), (2, 2), (-1, -1), (-1, -1)]
    world.copied(2, 7, (3, 4), (5, 6))
    assert told(world, 2) == (2, 4), "the epochs of the records before it are folded"


def test_an_empty_log_tells_nothing_of_epochs() -> None:
    world = World(is_on=False)
    log: Any = SimpleNamespace(start_offset=Offset(6), epochs=())
    world.partition.log = log
    assert world.remote.before_first(world.partition, Epoch(1)) == NOWHERE


def test_what_was_decoded_of_a_group_goes_with_it() -> None:
    world = World()
    world.copied(2, 7, (5, 2))
    world.remote.tiered(world.partition)
    for closed in world.ground.engine.closed:
        closed(world.partition)
    assert world.remote._decoded == {}


def test_where_a_log_begins_behind_its_copies_is_known_by_keys_that_are_not_older() -> None:
    """Simulator, seed 1080004486: a follower began behind what the tier had, while the key was on its way that said so. Its
    keys were all that it had heard of, and a consumer was told that the records are gone."""
    world = World()
    world.copied(2, 5, (5, 2))
    world.keys.is_current = False
    assert not world.remote.knows_start(world.partition) and not world.remote.knows_start(world.partition)
    assert len(world.keys.reads) == 1
    world.copied(2, 6, (5, 2))
    assert world.remote.knows_start(world.partition), "the copies reach the log now"
    world.copied(2, 5, (5, 2))
    assert not world.remote.knows_start(world.partition)
    world.keys.answer_reads()
    assert world.remote.knows_start(world.partition), "the quorum says that nothing is there"


def test_a_log_that_begins_later_is_asked_for_anew() -> None:
    world = World()
    assert world.remote.knows_start(world.partition)
    world.keys.is_current = False
    assert world.remote.knows_start(world.partition) and world.keys.reads == []
    later: Any = SimpleNamespace(start_offset=Offset(8), epochs=_Log.epochs)
    world.partition.log = later
    assert not world.remote.knows_start(world.partition)
    world.keys.answer_reads(ErrorCode.REQUEST_TIMED_OUT)
    assert not world.remote.knows_start(world.partition) and len(world.keys.reads) == 1
    world.keys.answer_reads()
    assert world.remote.knows_start(world.partition)
    for closed in world.ground.engine.closed:
        closed(world.partition)
    assert not world.remote.knows_start(world.partition)


def test_a_whole_log_and_one_without_a_tier_need_no_keys() -> None:
    world = World(is_on=False)
    world.keys.is_current = False
    assert world.remote.knows_start(world.partition) and world.keys.reads == []
    world = World()
    world.keys.is_current = False
    whole: Any = SimpleNamespace(start_offset=Offset(0), epochs=_Log.epochs)
    world.partition.log = whole
    assert world.remote.knows_start(world.partition) and world.keys.reads == []
