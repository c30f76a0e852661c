"""Which puts of reserved keys take effect: the state machine under these rules, as it applies, in snapshots, and beside one
that knows no rules."""

from __future__ import annotations

import json
import random

import pytest

from raftlake.kv.commands import Compare, Delete, Put, Txn, encode
from raftlake.kv.keys import CLUSTER_KEY, INCARNATION_KEY, PRODUCERS_NEXT_KEY, node_key, start_key, topic_key
from raftlake.kv.machine import Entry, StateMachine, TxnResult
from raftlake.raft.types import DirectoryId, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, RecordStart, Topic
from raftlake.replica.reserved_rules import PARTITIONS_MAX, ReservedRules
from raftlake.wire.ids import id_to_text

FIRST, SECOND = bytes(range(1, 17)), bytes(range(2, 18))
INCARNATION = json.dumps({"directoryId": id_to_text(FIRST), "nodeId": 1, "epoch": 5}).encode()
VOTERS = VoterSet({}).with_voter(ReplicaKey(NodeId(1), DirectoryId(FIRST)), (VoterEndpoint("CONTROLLER", "h", 9093),))


def ruled() -> StateMachine:
    return StateMachine(rules=ReservedRules)


def topics(machine: StateMachine) -> dict[str, Topic]:
    rules = machine.rules
    assert isinstance(rules, ReservedRules)
    return rules.topics


def described(name: str = "t", topic_id: bytes = FIRST, partitions: int = 2) -> bytes:
    return Topic(name, topic_id, partitions).encode()


def apply(machine: StateMachine, *ops: tuple[str, bytes | None], compares: tuple[Compare, ...] = ()) -> TxnResult:
    operations = tuple(Delete(key) if value is None else Put(key, value) for key, value in ops)
    return machine.apply(max(machine.applied_offset, 1), encode(Txn(compares, operations)))


def entries(machine: StateMachine) -> dict[str, Entry]:
    return dict(machine.list("", None, 1_000)[0])


def restored(machine: StateMachine) -> StateMachine:
    other = ruled()
    other.restore(machine.snapshot())
    return other


SPOILT_TOPICS = [
    b"",
    b"\xff",
    b"{}",
    b"[" * 10_000,
    described(partitions=0),
    described(partitions=PARTITIONS_MAX + 1),
    described(topic_id=bytes(16)),
    described(topic_id=SECOND),
    described(partitions=1),
    Topic("t", FIRST, 2, {}, VOTERS).encode(),
]


@pytest.mark.parametrize("spoilt", SPOILT_TOPICS, ids=lambda value: repr(value[:40]))
def test_a_topic_stays_as_it_is_whatever_is_put_over_it(spoilt: bytes) -> None:
    machine, key = ruled(), topic_key("t")
    apply(machine, (key, described()))
    for _ in range(2):
        result = apply(machine, (key, spoilt))
        assert result.succeeded and [name for name, _ in result.ignored] == [key]
        assert machine.get(key) == Entry(described(), result.offset)
        assert topics(machine) == topics(restored(machine)) == {"t": Topic("t", FIRST, 2)}
    (change,) = machine.changes_since(key, result.offset - 1)
    assert (change.value, change.version) == (described(), result.offset), "a watcher sees what a get returns"


@pytest.mark.parametrize("changed", [Topic("t", FIRST, 2), Topic("t", FIRST, 5), Topic("t", FIRST, 2, {"a": "b"})])
def test_a_topic_may_grow_and_its_configs_may_change(changed: Topic) -> None:
    machine = ruled()
    apply(machine, (topic_key("t"), described()))
    assert apply(machine, (topic_key("t"), changed.encode())).ignored == ()
    assert topics(machine) == {"t": changed}
    # And from there on it may not shrink.
    assert bool(apply(machine, (topic_key("t"), described())).ignored) is (changed.partitions > 2)


def test_the_other_operations_of_a_transaction_are_done() -> None:
    machine = ruled()
    apply(machine, (topic_key("t"), described()), ("gone", b"1"))
    result = apply(machine, ("before", b"1"), (topic_key("t"), b"{}"), ("gone", None), (topic_key("u"), described("u", SECOND)))
    assert result.succeeded and [key for key, _ in result.ignored] == [topic_key("t")]
    found = entries(machine)
    assert found["before"] == Entry(b"1", result.offset) and "gone" not in found
    assert set(topics(machine)) == {"t", "u"}
    changes = machine.changes_since("", result.offset - 1)
    assert [change.key for change in changes] == ["before", topic_key("t"), "gone", topic_key("u")]
    assert {change.version for change in changes} == {result.offset}


def test_a_transaction_whose_compare_fails_ignores_nothing() -> None:
    machine = ruled()
    apply(machine, (topic_key("t"), described()))
    before = entries(machine)
    result = apply(machine, (topic_key("t"), b"{}"), compares=(Compare(topic_key("t"), 7),))
    assert (result.succeeded, result.ignored) == (False, ())
    assert entries(machine) == before


def test_a_delete_ends_a_topic_and_any_other_may_follow() -> None:
    machine, key = ruled(), topic_key("t")
    apply(machine, (key, described()))
    apply(machine, (key, b"{}"))
    apply(machine, (key, None))
    assert machine.get(key) is None and topics(machine) == {}
    assert apply(machine, (key, b"{}")).ignored == ()
    assert topics(restored(machine)) == {}, "nothing good came back"
    assert apply(machine, (key, described(topic_id=SECOND, partitions=1))).ignored == ()
    assert topics(machine) == {"t": Topic("t", SECOND, 1)}


def test_one_id_stands_under_one_name_and_spoiling_the_older_key_does_not_change_that() -> None:
    machine, old, new = ruled(), topic_key("b"), topic_key("a")
    apply(machine, (old, described("b")))
    assert [key for key, _ in apply(machine, (new, described("a"))).ignored] == [new]
    for value in (b"{}", described("b")):
        apply(machine, (old, value))
        assert set(topics(machine)) == set(topics(restored(machine))) == {"b"}
    assert set(apply(machine, (old, None), (new, described("a"))).ignored) == set()
    assert set(topics(machine)) == set(topics(restored(machine))) == {"a"}, "with the name that had it the id is free"


@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a"), ("a", "c", "b")])
def test_of_names_for_one_id_in_an_old_snapshot_the_oldest_key_counts(names: tuple[str, ...]) -> None:
    old = StateMachine()
    for name in names:
        apply(old, (topic_key(name), described(name)))
    machine = restored(old)
    assert set(topics(machine)) == {names[0]}
    assert topics(restored(machine)) == topics(machine)
    found = entries(machine)
    assert {key: entry.version for key, entry in found.items()} == {key: e.version for key, e in entries(old).items()}
    assert [found[topic_key(name)].value for name in names] == [described(names[0]), b"", b""]
    apply(machine, (topic_key(names[0]), None))
    assert topics(machine) == topics(restored(machine)) == {}


def test_two_names_for_one_id_of_one_transaction_are_told_apart_alike() -> None:
    old, fresh = StateMachine(), ruled()
    for machine in (old, fresh):
        apply(machine, (topic_key("a"), described("a")), (topic_key("b"), described("b")))
    assert set(topics(restored(old))) == set(topics(fresh)) == {"a"}


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"0", b"1999", b"9" * 30])
def test_producer_ids_never_go_back(value: bytes) -> None:
    machine = ruled()
    apply(machine, ("filler", b""))
    apply(machine, (PRODUCERS_NEXT_KEY, b"2000"))
    result = apply(machine, (PRODUCERS_NEXT_KEY, value))
    assert machine.get(PRODUCERS_NEXT_KEY) == Entry(b"2000", result.offset) and result.ignored
    assert apply(machine, (PRODUCERS_NEXT_KEY, b"3000")).ignored == ()


def test_producer_ids_go_on_above_what_was_spoilt_from_the_beginning() -> None:
    machine = ruled()
    apply(machine, (PRODUCERS_NEXT_KEY, b"x"))
    apply(machine, (PRODUCERS_NEXT_KEY, b"y"))
    assert machine.get(PRODUCERS_NEXT_KEY) == Entry(b"y", 2)
    assert apply(machine, (PRODUCERS_NEXT_KEY, b"%d" % (2 * PRODUCER_IDS_BLOCK - 1))).ignored
    assert apply(machine, (PRODUCERS_NEXT_KEY, b"%d" % (4 * PRODUCER_IDS_BLOCK))).ignored == ()


def test_an_incarnation_gives_way_to_another_one_alone() -> None:
    machine = ruled()
    assert apply(machine, (INCARNATION_KEY, b"{}")).ignored == ()
    assert apply(machine, (INCARNATION_KEY, INCARNATION)).ignored == ()
    result = apply(machine, (INCARNATION_KEY, b"{}"))
    assert machine.get(INCARNATION_KEY) == Entry(INCARNATION, result.offset) and result.ignored
    later = INCARNATION.replace(b"5", b"6")
    assert apply(machine, (INCARNATION_KEY, later)).ignored == ()
    entry = machine.get(INCARNATION_KEY)
    assert entry is not None and entry.value == later


@pytest.mark.parametrize("key", [node_key(1), CLUSTER_KEY, "/raftlake/later", "/raftlake", "/raftlake/topics", "mine"])
def test_what_nodes_write_anew_and_what_they_do_not_know_is_taken_as_it_is(key: str) -> None:
    machine = ruled()
    for value in (b'{"host": "h", "port": 1, "cluster_id": "%s"}' % id_to_text(FIRST).encode(), b"{}"):
        assert apply(machine, (key, value)).ignored == ()
        entry = machine.get(key)
        assert entry is not None and entry.value == value


@pytest.mark.parametrize("seed", range(20))
def test_versions_and_outcomes_are_those_of_a_release_without_rules(seed: int) -> None:
    """Nodes of earlier releases, and nodes that begin with their snapshots, go on with the same versions."""
    rng = random.Random(seed)
    ours, plain = ruled(), StateMachine()
    names = [topic_key(name) for name in "abc"]
    keys = [*names, PRODUCERS_NEXT_KEY, INCARNATION_KEY, node_key(1), "mine"]
    values = [*SPOILT_TOPICS, described(), described(topic_id=SECOND, partitions=3), b"0", b"1000", INCARNATION, None, None]
    ignored = 0
    for _ in range(300):
        ops = tuple((key, rng.choice(values)) for key in rng.sample(keys, rng.randrange(1, 4)))
        compare = Compare(rng.choice(keys), rng.choice([0, -1, *range(max(plain.applied_offset - 8, 1), plain.applied_offset)]))
        compares = (compare,) if rng.random() < 0.4 else ()
        found, expected = apply(ours, *ops, compares=compares), apply(plain, *ops, compares=compares)
        assert (found.succeeded, found.offset, found.current) == (expected.succeeded, expected.offset, expected.current)
        ignored += len(found.ignored)
        versions = [{key: entry.version for key, entry in entries(machine).items()} for machine in (ours, plain)]
        assert versions[0] == versions[1]
        if rng.random() < 0.1:
            after = restored(ours)
            assert (entries(after), topics(after)) == (entries(ours), topics(ours))
            ours = after
        if rng.random() < 0.02:
            ours = restored(plain)
    assert ignored > 20


# --- deleted records ---

START, LATER = start_key(id_to_text(FIRST), 3), id_to_text(SECOND)


def starts(machine: StateMachine) -> dict[tuple[bytes, int], RecordStart]:
    rules = machine.rules
    assert isinstance(rules, ReservedRules)
    return dict(rules.starts)


@pytest.mark.parametrize(
    ("put", "is_taken"),
    [
        (RecordStart(Offset(8)).encode(), True),
        (RecordStart(Offset(7)).encode(), True),
        (RecordStart(Offset(6)).encode(), False),
        (RecordStart(Offset(6), LATER).encode(), True),
        (b"", False),
        (b'{"offset": -1, "recovery": ""}', False),
        (b'{"offset": 9, "recovery": "no id"}', False),
        (b'{"offset": 9}', False),
    ],
)
def test_deleted_records_come_back_with_a_recovery_alone(put: bytes, is_taken: bool) -> None:
    machine = ruled()
    apply(machine, (START, RecordStart(Offset(7)).encode()))
    assert bool(apply(machine, (START, put)).ignored) is not is_taken
    found = starts(machine)
    assert (found == {(FIRST, 3): RecordStart(Offset(7))}) is (not is_taken or put == RecordStart(Offset(7)).encode())
    assert found == starts(restored(machine))


def test_a_start_ends_with_its_key_and_what_names_no_partition_means_nothing() -> None:
    machine = ruled()
    apply(machine, (START, RecordStart(Offset(7)).encode()), (f"{START}0/x", b"any"), (start_key("short", 1), b"any"))
    assert set(starts(machine)) == {(FIRST, 3)}
    apply(machine, (START, None), (f"{START}0/x", None))
    assert starts(machine) == starts(restored(machine)) == {}
    apply(machine, (START, RecordStart(Offset(2)).encode()))
    assert starts(machine) == {(FIRST, 3): RecordStart(Offset(2))}


def test_over_a_start_that_means_nothing_any_start_is_taken() -> None:
    machine = ruled()
    assert apply(machine, (START, b"{}")).ignored == ()
    assert starts(machine) == {}
    assert apply(machine, (START, RecordStart(Offset(2)).encode())).ignored == ()
    assert starts(machine) == starts(restored(machine)) == {(FIRST, 3): RecordStart(Offset(2))}
