"""What a surviving directory knows of the quorum's keys: its newest whole snapshot, and the log behind it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raftlake.kv.commands import Compare, Delete, EndTxn, Put, Txn, encode, put
from raftlake.kv.keys import start_key, tier_key
from raftlake.kv.machine import StateMachine
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.replica import transaction_entry
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.partition.snapshot_files import SnapshotMaker
from raftlake.replica.reserved import RecordStart
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.replica.transaction_entry import Transaction, TransactionState, transaction_key
from raftlake.runtime.recovery.key_space import copied_partitions, key_space, starts_within
from raftlake.storage.directory import FileLogDirectory
from raftlake.tier.entries import Tiered, encode_tiered
from raftlake.wire.ids import id_to_text
from recoverkit import ORDERS, command, make_survivor, tiered

OTHER = ORDERS._replace(partition=1)
KEY, OTHER_KEY = (tier_key(id_to_text(ORDERS.topic_id), partition) for partition in (0, 1))


@pytest.fixture
def survivor(tmp_path: Path) -> Path:
    return make_survivor(tmp_path)


def found_in(place: Path) -> dict[int, int]:
    """Up to where each partition is copied."""
    logs = FileLogDirectory(place, post=None)
    try:
        found = copied_partitions(key_space(logs))
    finally:
        logs.close()
    assert {group._replace(partition=0) for group in found} <= {ORDERS}
    return {group.partition: known.end_offset for group, known in found.items()}


def test_without_a_copy_there_is_nothing(survivor: Path) -> None:
    assert found_in(survivor) == {}
    command(survivor, put(KEY, encode_tiered(Tiered(start_offset=Offset(5), end_offset=Offset(5)))))
    command(survivor, put("/users/key", b"x"))
    assert found_in(survivor) == {}


def test_the_last_word_of_the_log_counts(survivor: Path) -> None:
    command(survivor, put(KEY, tiered(9)), put(OTHER_KEY, tiered(4)))
    assert found_in(survivor) == {0: 9, 1: 4}
    command(survivor, put(KEY, tiered(12)), Txn((), (Delete(OTHER_KEY),)))
    assert found_in(survivor) == {0: 12}


@pytest.mark.parametrize("name", ["A" * 21 + "B", "short", ""])
def test_a_key_of_no_topic_id_tells_of_no_copies(survivor: Path, name: str) -> None:
    """It stops no recovery."""
    command(survivor, put(tier_key(name, 0), tiered(30)), put(KEY, tiered(9)))
    assert found_in(survivor) == {0: 9}


def test_a_change_whose_condition_failed_does_not_count(survivor: Path) -> None:
    command(survivor, put(KEY, tiered(9)), Txn((Compare(KEY, 77),), (Put(KEY, tiered(40)),)))
    assert found_in(survivor) == {0: 9}


def test_transactions_are_as_their_last_command_left_them(survivor: Path) -> None:
    ongoing = Transaction(transactional_id="a", producer_id=7, epoch=2, timeout_ms=1_000, state=TransactionState.ONGOING)
    key = transaction_key("a")
    command(
        survivor, put(key, transaction_entry.encode(ongoing)), Txn((), (EndTxn(7, 1, True),)), Txn((), (EndTxn(7, 2, False),))
    )
    aborted = ongoing.decided(False).retired()
    logs = FileLogDirectory(survivor, post=None)
    try:
        machine = key_space(logs)
    finally:
        logs.close()
    assert isinstance(machine.rules, ReservedRules)
    assert machine.rules.transactions.of(7) == aborted
    entry = machine.get(key)
    assert entry is not None
    assert transaction_entry.decode(key, entry.value) == aborted


def test_keys_of_a_snapshot_count_and_the_log_behind_it(survivor: Path) -> None:
    command(survivor, put(OTHER_KEY, tiered(3)))
    logs = FileLogDirectory(survivor, post=None)
    log = logs.open(METADATA_GROUP)
    place = OffsetAndEpoch(log.end_offset, Epoch(4))
    machine = StateMachine(rules=ReservedRules)
    machine.apply(1, encode(put(KEY, tiered(30))))
    machine.advance_to(place.offset)
    maker = SnapshotMaker(logs.snapshots.create(METADATA_GROUP, place), place, None, int(time.time() * 1000), -1)
    for chunk in machine.snapshot():
        maker.add(bytes(chunk))
    maker.end()
    maker.writer.freeze(lambda error: None)
    logs.close()
    assert found_in(survivor) == {0: 30}, "what the snapshot does not have is deleted"
    command(survivor, put(OTHER_KEY, tiered(6)))
    assert found_in(survivor) == {0: 30, 1: 6}
    (path,) = survivor.glob("*/*.checkpoint")
    path.write_bytes(path.read_bytes()[:-40])
    assert found_in(survivor) == {1: 6}, "one that is damaged is passed over"


# --- deleted records

NEW, OLD = id_to_text(bytes(range(20, 36))), id_to_text(bytes(range(30, 46)))


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        (RecordStart(Offset(30)), RecordStart(Offset(12), NEW)),
        (RecordStart(Offset(13), OLD), RecordStart(Offset(12), NEW)),
        # All of that is still there.
        (RecordStart(Offset(12)), None),
        (RecordStart(Offset(5), OLD), None),
        # It was written by this very recovery, before it was interrupted.
        (RecordStart(Offset(11), NEW), RecordStart(Offset(11), NEW)),
    ],
)
def test_what_is_deleted_ends_where_the_log_ends(start: RecordStart, wanted: RecordStart | None) -> None:
    machine = StateMachine(rules=ReservedRules)
    key = start_key(id_to_text(ORDERS.topic_id), 0)
    machine.apply(1, encode(put(key, start.encode())))
    ends = {(ORDERS.topic_id, 0): Offset(12)}
    assert starts_within(machine, ends, NEW) == ({} if wanted is None else {key: wanted.encode()})


def test_of_a_log_that_is_lost_nothing_is_deleted() -> None:
    machine = StateMachine(rules=ReservedRules)
    key = start_key(id_to_text(ORDERS.topic_id), 1)
    machine.apply(1, encode(put(key, RecordStart(Offset(4)).encode())))
    assert starts_within(machine, {(ORDERS.topic_id, 0): Offset(12)}, NEW) == {key: RecordStart(Offset(0), NEW).encode()}
