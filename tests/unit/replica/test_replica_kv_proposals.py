"""Who may propose what: reserved keys are written by nodes alone, and each as nodes write it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare, Delete, EndTxn, Put, Txn, encode, put
from raftlake.kv.keys import CLUSTER_KEY, INCARNATION_KEY, PRODUCERS_NEXT_KEY, TRANSACTIONS_PREFIX, node_key, topic_key
from raftlake.ports.driver import ListenerUse, Origin, PeerConnection
from raftlake.ports.peer_rpcs import ProposeReply, ProposeRpc
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, Topic
from raftlake.replica.transaction_entry import Transaction, TransactionState, transaction_key
from raftlake.replica.transaction_entry import encode as encode_transaction
from raftlake.replica.voters.membership import LOOK_INTERVAL_MS, cluster_value
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.control import voters_batch
from raftlake.wire.ids import id_to_text
from replica_cluster import Cluster

ADDRESSES = b'{"host": "h", "port": 9092}'
TOPIC_ID = bytes(range(1, 17))
SENDER = NodeId(2)
#: On a listener that peers do not use, a node's client id makes nobody a node.
WHERE = {Origin.PEER: ListenerUse.SHARED, Origin.CLIENT: ListenerUse.CLIENTS}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.run(2_000, until=lambda: all(node.cluster_id is not None for node in cluster.nodes.values()))
    return cluster


def created(name: str, topic_id: bytes = TOPIC_ID, partitions: int = 1) -> Txn:
    return put(topic_key(name), Topic(name, topic_id, partitions).encode(), 0)


def framed(*txns: Txn, compression: str = "none") -> bytes:
    records = [Record(offset=index, key=None, value=encode(txn)) for index, txn in enumerate(txns)]
    return bytes(build_batch(records, base_offset=0, leader_epoch=0, timestamp_ms=1, compression=compression))


def forward(
    cluster: Cluster, batch: bytes, *, origin: Origin = Origin.PEER, source: NodeId = SENDER, node: ReplicaNode | None = None
) -> ErrorCode:
    """What a node answers to a batch that is forwarded to it; the leader, unless another is named."""
    replies: list[Any] = []
    asked = node or cluster.leader()
    asked.receive(PeerConnection(listener=WHERE[origin]), ProposeRpc(batch=batch, source=source), replies.append)
    cluster.run(5_000, until=lambda: bool(replies))
    (reply,) = replies
    assert isinstance(reply, ProposeReply)
    return reply.error


def propose(cluster: Cluster, txn: Txn, origin: Origin) -> ProposeOutcome:
    outcomes: list[ProposeOutcome] = []
    cluster.leader().kv.propose(txn, outcomes.append, origin)
    cluster.run(5_000, until=lambda: bool(outcomes))
    return outcomes[0]


RESERVED = [
    put(node_key(2), ADDRESSES),
    put("/raftlake/nodes/evil", b"{}"),
    put(CLUSTER_KEY, b"{}"),
    put(PRODUCERS_NEXT_KEY, b"0"),
    put(INCARNATION_KEY, b"{}"),
    put("/raftlake/topics/../../../pwned", b"{}"),
    put("/raftlake/anything", b""),
    put(TRANSACTIONS_PREFIX + "a", b"{}"),
    Txn((), (EndTxn(1, 0, True), Put("/raftlake/anything", b""))),
    put("/raftlake", b""),
    Txn((), (Delete(node_key(1)),)),
    Txn((), (Put("mine", b"1"), Delete(topic_key("t")))),
    created("t"),
]


@pytest.mark.parametrize("txn", RESERVED, ids=lambda txn: txn.ops[-1].key)
def test_a_client_writes_no_reserved_key_by_any_road(cluster: Cluster, txn: Txn) -> None:
    leader = cluster.leader()
    end = leader.partitions[METADATA_GROUP].core.log_end
    assert propose(cluster, txn, Origin.CLIENT).status is ProposeStatus.REFUSED
    assert forward(cluster, framed(txn), origin=Origin.CLIENT) is ErrorCode.POLICY_VIOLATION
    assert leader.kv.gate.count == 2
    assert leader.partitions[METADATA_GROUP].core.log_end == end, "nothing was proposed"


def test_who_does_not_say_who_asks_is_a_client(cluster: Cluster) -> None:
    outcomes: list[ProposeOutcome] = []
    cluster.leader().kv.propose(created("t"), outcomes.append)
    assert [outcome.status for outcome in outcomes] == [ProposeStatus.REFUSED]


@pytest.mark.parametrize("origin", Origin)
def test_users_keys_may_be_written_by_all_of_them(cluster: Cluster, origin: Origin) -> None:
    outcome = propose(cluster, put("mine", b"1"), origin)
    assert outcome.status is ProposeStatus.DONE
    if origin in WHERE:
        assert forward(cluster, framed(put("/raftlakes", b"1")), origin=origin) is ErrorCode.NONE


ID_KEY = transaction_key("a")
IDLE = Transaction(transactional_id="a", producer_id=4, epoch=2, timeout_ms=9, state=TransactionState.EMPTY)
BEGUN = replace(IDLE, state=TransactionState.ONGOING, partitions=frozenset({(TOPIC_ID, 0)}), started_ms=7)


def as_put(found: Transaction, version: int | None) -> Txn:
    return put(ID_KEY, encode_transaction(found), version)


@pytest.mark.parametrize("standing", [IDLE, BEGUN, BEGUN.raised(True).completed()], ids=lambda found: found.state.value)
def test_a_node_adds_partitions_to_transactions_and_changes_nothing_else_of_them(
    cluster: Cluster, standing: Transaction
) -> None:
    outcome = propose(cluster, as_put(standing, None), Origin.SELF)
    assert outcome.result is not None and not outcome.result.ignored
    version = outcome.result.offset
    more = replace(
        standing,
        state=TransactionState.ONGOING,
        partitions=frozenset({(TOPIC_ID, 0), (TOPIC_ID, 1)}),
        is_raised=False,
        started_ms=8,
        updated_ms=9,
    )
    others = [replace(more, epoch=more.epoch + 1), replace(more, timeout_ms=10), replace(more, producer_id=5)]
    others += [replace(more, last_producer_id=1, last_epoch=1), more.decided(True), more.raised(True), IDLE]
    for found in others:
        assert forward(cluster, framed(as_put(found, version))) is ErrorCode.POLICY_VIOLATION, found
    for unconditional in (as_put(more, None), as_put(more, 0)):
        assert forward(cluster, framed(unconditional)) is ErrorCode.POLICY_VIOLATION
    assert cluster.leader().kv.state.transactions.by_key[ID_KEY] == standing
    assert forward(cluster, framed(as_put(more, version))) is ErrorCode.NONE
    assert cluster.leader().kv.state.transactions.by_key[ID_KEY] == more
    # Another change came first: the condition refuses it, as of any change.
    assert forward(cluster, framed(as_put(more, version))) is ErrorCode.NONE


@pytest.mark.parametrize("origin", Origin)
def test_transactions_of_producers_may_be_ended_by_all_of_them(cluster: Cluster, origin: Origin) -> None:
    """Whether one can be is judged as the command is applied."""
    outcome = propose(cluster, Txn((), (Put("mine", b"1"), EndTxn(1, 0, True))), origin)
    assert outcome.result is not None
    assert [producer_id for producer_id, _ in outcome.result.refused] == [1]
    if origin in WHERE:
        assert forward(cluster, framed(Txn((), (EndTxn(1, 0, True),))), origin=origin) is ErrorCode.NONE


SPOILT_BY_PEERS = [
    ("another node's addresses", put(node_key(3), ADDRESSES, 0)),
    ("addresses that are none", put(node_key(2), b"{}", 0)),
    ("a node without a number", put("/raftlake/nodes/evil", ADDRESSES, 0)),
    ("addresses without a condition", put(node_key(2), ADDRESSES)),
    ("a node's key deleted", Txn((Compare(node_key(1), 5),), (Delete(node_key(1)),))),
    ("a condition on another key", Txn((Compare("mine", 0),), (Put(node_key(2), ADDRESSES),))),
    ("two keys", Txn((Compare(node_key(2), 0),), (Put(node_key(2), ADDRESSES), Put("mine", b"")))),
    ("an incarnation", put(INCARNATION_KEY, b"{}", 0)),
    ("a transaction", put(TRANSACTIONS_PREFIX + "a", b"{}", 0)),
    ("a transaction deleted", Txn((Compare(TRANSACTIONS_PREFIX + "a", 5),), (Delete(TRANSACTIONS_PREFIX + "a"),))),
    ("an end beside its own address", Txn((Compare(node_key(2), 0),), (EndTxn(1, 0, True), Put(node_key(2), ADDRESSES)))),
    ("a key that no node writes", put("/raftlake/anything", b"", 0)),
    ("another cluster", put(CLUSTER_KEY, cluster_value(id_to_text(TOPIC_ID)), 1)),
    ("no cluster", put(CLUSTER_KEY, b"{}", 1)),
    ("producer ids that go back", put(PRODUCERS_NEXT_KEY, b"0", 0)),
    ("producer ids that leap", put(PRODUCERS_NEXT_KEY, b"2000", 0)),
    ("producer ids of a version to come, far above", put(PRODUCERS_NEXT_KEY, b"9" * 18, 100)),
    ("producer ids of a version to come, that go back", put(PRODUCERS_NEXT_KEY, b"0", 100)),
    ("producer ids that are no number", put(PRODUCERS_NEXT_KEY, b"x", 0)),
    ("producer ids deleted", Txn((Compare(PRODUCERS_NEXT_KEY, 1),), (Delete(PRODUCERS_NEXT_KEY),))),
    ("a topic with a bad name", put("/raftlake/topics/../../../pwned", Topic("t", TOPIC_ID, 1).encode(), 0)),
    ("a topic over another", put(topic_key("t"), Topic("t", TOPIC_ID, 1).encode(), 7)),
    ("a topic at any version", put(topic_key("t"), Topic("t", TOPIC_ID, 1).encode(), -1)),
    ("a topic that is none", put(topic_key("t"), b"{}", 0)),
    ("a topic with the metadata log's id", created("t", bytes(15) + b"\x01")),
    ("a topic with too many partitions", created("t", partitions=10_001)),
    ("a topic deleted at no version", Txn((Compare(topic_key("t"), 0),), (Delete(topic_key("t")),))),
    ("a topic deleted at any version", Txn((Compare(topic_key("t"), -1),), (Delete(topic_key("t")),))),
]


@pytest.mark.parametrize("txn", [txn for _, txn in SPOILT_BY_PEERS], ids=[name for name, _ in SPOILT_BY_PEERS])
def test_a_peer_forwards_only_what_nodes_write(cluster: Cluster, txn: Txn) -> None:
    leader = cluster.leader()
    end = leader.partitions[METADATA_GROUP].core.log_end
    assert forward(cluster, framed(txn)) is ErrorCode.POLICY_VIOLATION
    assert leader.kv.gate.count == 1
    assert leader.partitions[METADATA_GROUP].core.log_end == end, "nothing was proposed"


def test_a_topic_with_the_id_of_another_is_refused(cluster: Cluster) -> None:
    assert forward(cluster, framed(created("first"))) is ErrorCode.NONE
    assert forward(cluster, framed(created("second"))) is ErrorCode.POLICY_VIOLATION


def test_what_nodes_write_passes(cluster: Cluster) -> None:
    machine = cluster.leader().kv.machine
    assert forward(cluster, framed(put(node_key(9), ADDRESSES, 0)), source=NodeId(9)) is ErrorCode.NONE
    assert forward(cluster, framed(created("t"))) is ErrorCode.NONE
    topic = machine.get(topic_key("t"))
    assert topic is not None
    assert forward(cluster, framed(Txn((Compare(topic_key("t"), topic.version),), (Delete(topic_key("t")),)))) is ErrorCode.NONE
    assert machine.get(topic_key("t")) is None
    for block in (1, 2):
        known = machine.get(PRODUCERS_NEXT_KEY)
        version = 0 if known is None else known.version
        block_taken = put(PRODUCERS_NEXT_KEY, b"%d" % (block * PRODUCER_IDS_BLOCK), version)
        assert forward(cluster, framed(block_taken)) is ErrorCode.NONE
        # A node that has not seen it yet asks for the same block: it is told that its condition failed.
        assert forward(cluster, framed(block_taken)) is ErrorCode.NONE
    taken = machine.get(PRODUCERS_NEXT_KEY)
    assert taken is not None and taken.value == b"2000"


def test_a_forwarded_command_is_one_plain_record(cluster: Cluster) -> None:
    one = put("mine", b"1")
    spoilt = [
        framed(one, one),
        framed(one, compression="zstd"),
        framed(one) + framed(one),
        framed(one)[:-1],
        voters_batch(0, 1, -1, [], kraft_version=1),
        bytes(build_batch([Record(offset=0, key=None, value=b"no command")], base_offset=0, leader_epoch=0, timestamp_ms=1)),
    ]
    for batch in spoilt:
        assert forward(cluster, batch) is ErrorCode.INVALID_RECORD
    assert cluster.leader().kv.machine.get("mine") is None
    assert forward(cluster, framed(one)) is ErrorCode.NONE


def test_a_follower_judges_nothing(cluster: Cluster) -> None:
    follower = cluster.followers()[0]
    assert forward(cluster, framed(created("t")), node=follower) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follower.kv.gate.count == 0


# --- what was committed before there was a gate ----------------------------------------------------------------------


def test_of_two_topics_with_one_id_the_older_key_counts_on_all_nodes_and_after_a_restart(cluster: Cluster) -> None:
    def view(node: ReplicaNode) -> list[str]:
        return [topic.name for topic in node.names.all()]

    def seen_by_all(names: list[str]) -> None:
        cluster.run(5_000, until=lambda: all(view(node) == names for node in cluster.nodes.values()))

    def rewrite(name: str) -> None:
        propose(cluster, put(topic_key(name), Topic(name, TOPIC_ID, 1).encode()), Origin.SELF)

    rewrite("b")
    rewrite("a")
    seen_by_all(["b"])
    # The topic is older than its key's version says.
    rewrite("b")
    cluster.run(1_000)
    seen_by_all(["b"])
    restarted = cluster.followers()[0].config.node_id
    cluster.stop(restarted)
    cluster.start(restarted)
    seen_by_all(["b"])
    propose(cluster, Txn((), (Delete(topic_key("b")),)), Origin.SELF)
    seen_by_all([])
    rewrite("a")
    seen_by_all(["a"])
    propose(cluster, Txn((), (Delete(topic_key("a")),)), Origin.SELF)
    seen_by_all([])


@pytest.mark.parametrize("spoilt", [b"{}", b"\xff", b'{"host": "h", "port": 9092, "http_host": "h", "http_port": true}', None])
def test_addresses_that_are_spoilt_are_forgotten_by_all_nodes_as_after_a_restart(
    cluster: Cluster, spoilt: bytes | None
) -> None:
    whole = b'{"host": "h", "port": 9092, "http_host": "h", "http_port": 8080}'
    nine = NodeId(9)

    def known_by_all(listener: Endpoint | None, http: Endpoint | None) -> None:
        cluster.run(
            5_000,
            until=lambda: all(
                (node.membership.endpoint(nine), node.membership.http_endpoint(nine)) == (listener, http)
                for node in cluster.nodes.values()
            ),
        )

    def write(value: bytes | None) -> None:
        propose(cluster, put(node_key(9), value) if value is not None else Txn((), (Delete(node_key(9)),)), Origin.SELF)

    write(whole)
    known_by_all(Endpoint("h", 9092), Endpoint("h", 8080))
    write(ADDRESSES)
    known_by_all(Endpoint("h", 9092), None)
    write(whole)
    write(spoilt)
    known_by_all(None, None)
    restarted = cluster.followers()[0].config.node_id
    cluster.stop(restarted)
    cluster.start(restarted)
    known_by_all(None, None)
    write(whole)
    known_by_all(Endpoint("h", 9092), Endpoint("h", 8080))


def test_a_topic_with_the_name_of_the_quorums_own_log_replaces_nothing(cluster: Cluster) -> None:
    name = METADATA_GROUP.topic
    key = topic_key(name)
    for txn in (put(key, Topic(name, TOPIC_ID, 2).encode()), put(key, b"{}"), Txn((), (Delete(key),))):
        propose(cluster, txn, Origin.SELF)
        cluster.run(1_000)
        for node in cluster.nodes.values():
            assert list(node.partitions) == [METADATA_GROUP]
            assert node.names.resolve_group(name, 0) == METADATA_GROUP
            assert node.names.by_id(TOPIC_ID) is None
    cluster.create_topic("afterwards")


def test_the_spoilt_id_of_the_cluster_is_written_anew_by_those_that_know_it(cluster: Cluster) -> None:
    cluster_id = cluster.leader().cluster_id
    propose(cluster, put(CLUSTER_KEY, b'{"cluster_id": "another"}'), Origin.SELF)

    def is_mended() -> bool:
        entry = cluster.leader().kv.machine.get(CLUSTER_KEY)
        return entry is not None and json.loads(entry.value) == {"cluster_id": cluster_id}

    assert not is_mended()
    cluster.run(10_000, until=is_mended)
    assert {node.cluster_id for node in cluster.nodes.values()} == {cluster_id}


def test_addresses_that_mean_nothing_are_deleted_with_those_of_nodes_that_are_gone() -> None:
    cluster = Cluster(node_expiration_ms=5_000)
    cluster.run(2_000)
    for name in ("evil", "01", "99"):
        propose(cluster, put(f"/raftlake/nodes/{name}", ADDRESSES), Origin.SELF)
    assert set(cluster.leader().membership.nodes()) == {1, 2, 3, 99}
    cluster.run(5_000 + 2 * LOOK_INTERVAL_MS)
    keys = [key for key, _ in cluster.leader().kv.machine.list("/raftlake/nodes/", None, 10)[0]]
    assert keys == [node_key(number) for number in (1, 2, 3)]
