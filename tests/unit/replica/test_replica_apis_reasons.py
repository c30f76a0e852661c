"""Refusals that no repetition changes say why: in the answer, where that has room, and in the node's log, with who asked."""

from __future__ import annotations

import uuid
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import pytest

from configkit import alteration, created, schema
from producerkit import TxnProducer
from raftlake.errors import ErrorCode
from raftlake.kv.commands import EndTxn, Txn
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.apis.transactions import DESCRIBED_MAX
from raftlake.replica.apis.write_txn_markers import MARKERS_MAX
from raftlake.replica.config import METADATA_TOPIC, ClientContext
from raftlake.replica.refused_for_good import Refusal
from raftlake.wire.api import ApiKey
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from replica_cluster import Cluster, batch
from txnkit import produce, records, result_of, send_to

E = ErrorCode
OWN_LOG = f"{METADATA_TOPIC} is the quorum's own log"
TIMEOUT = timedelta(seconds=5)
CLIENT = ClientContext("hostile", "10.0.0.9")


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    cluster = Cluster(1, partitions_max=20)
    cluster.create_topic("t", 2)
    (group,) = created(cluster, "compacted", cleanup_policy="compact")
    cluster.leader(group)
    return cluster


def told_by(cluster: Cluster) -> list[Refusal]:
    """What the nodes are told from now on, as if nothing had been told before."""
    told: list[Refusal] = []
    for node in cluster.nodes.values():
        node.refused_for_good._told.clear()
        node.refused_for_good.listeners[:] = [told.append]
    return told


def deletion(topic: str, *places: tuple[int, int]) -> Any:
    made = schema("delete_records", 2)
    parts = tuple(made.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in places)
    return made.DeleteRecordsRequest(topics=(made.DeleteRecordsTopic(name=topic, partitions=parts),), timeout=TIMEOUT)


def growth(*names: str, count: int = 5, only: bool = False, assigned: bool = False) -> Any:
    made = schema("create_partitions", 3)
    assignments = (made.CreatePartitionsAssignment(broker_ids=(1,)),) if assigned else None
    topics = tuple(made.CreatePartitionsTopic(name=name, count=count, assignments=assignments) for name in names)
    return made.CreatePartitionsRequest(topics=topics, timeout=TIMEOUT, validate_only=only)


def creation(name: str, partitions: int = 1, *, only: bool = False) -> Any:
    made = schema("create_topics", 7)
    topic = made.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, assignments=(), configs=())
    return made.CreateTopicsRequest(topics=(topic,), validate_only=only)


def removal(*names: str) -> Any:
    made = schema("delete_topics", 6)
    topics = tuple(made.DeleteTopicState(name=name, topic_id=None) for name in names)
    return made.DeleteTopicsRequest(topics=topics, timeout=TIMEOUT)


def initiation(name: str, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1)) -> Any:
    return schema("init_producer_id", 4).InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout=timedelta(milliseconds=timeout_ms),
        producer_id=expected[0],
        producer_epoch=expected[1],
    )


def addition(topic: str) -> Any:
    made = schema("add_partitions_to_txn", 3)
    return made.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(made.AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
    )


def markers(*indexes: int) -> Any:
    made = schema("write_txn_markers", 1)
    topic = made.WritableTxnMarkerTopic(name="t", partition_indexes=tuple(indexes))
    marker = made.WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=False, topics=(topic,), coordinator_epoch=0
    )
    return made.WriteTxnMarkersRequest(markers=(marker,))


def listing(timestamp: int) -> Any:
    made = schema("list_offsets", 9)
    topic = made.ListOffsetsTopic(name="t", partitions=(made.ListOffsetsPartition(partition_index=1, timestamp=timestamp),))
    return made.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))


def description(kind: int, name: str) -> Any:
    made = schema("describe_configs", 4)
    resource = made.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    return made.DescribeConfigsRequest(resources=(resource,))


def look_up(name: str) -> Any:
    made = schema("metadata", 12)
    topic = made.MetadataRequestTopic(name=name, topic_id=None)
    return made.MetadataRequest(topics=(topic,), allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def voter_removal(cluster_id: str | None = None) -> Any:
    return schema("remove_raft_voter", 0).RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=9, voter_directory_id=uuid.UUID(int=7)
    )


def transactions(*names: str) -> Any:
    return schema("describe_transactions", 0).DescribeTransactionsRequest(transactional_ids=names)


#: The request; what was refused, and its subject in the log; words of the reason.
REFUSED: dict[str, tuple[Any, str, str, str]] = {
    "records of a compacted topic": (
        deletion("compacted", (0, 0)),
        "delete records",
        "compacted",
        "POLICY_VIOLATION: topic 'compacted' has cleanup.policy=compact; set it to compact,delete or delete first",
    ),
    "records of the own log": (
        deletion(METADATA_TOPIC, (0, 1)),
        "delete records",
        METADATA_TOPIC,
        f"INVALID_TOPIC_EXCEPTION: {OWN_LOG}",
    ),
    "records above the end": (
        deletion("t", (1, 99)),
        "delete records",
        "t",
        # The high watermark is that of all tests of the module.
        "OFFSET_OUT_OF_RANGE: offset 99 of t-1: accepted are 0 to ",
    ),
    "records of a partition twice": (
        deletion("t", (1, 0), (1, 0)),
        "delete records",
        "t",
        "INVALID_REQUEST: partition 1 stands in the request more than once",
    ),
    "partitions of the own log": (
        growth(METADATA_TOPIC),
        "give a topic more partitions",
        METADATA_TOPIC,
        f"INVALID_TOPIC_EXCEPTION: {OWN_LOG}",
    ),
    "as many partitions": (
        growth("t", count=2),
        "give a topic more partitions",
        "t",
        "INVALID_PARTITIONS: Topic already has 2 partition(s).",
    ),
    "too many partitions, only tried": (
        growth("t", count=20, only=True),
        "give a topic more partitions",
        "t",
        "INVALID_PARTITIONS: 18 more partitions would exceed the limit of 19",
    ),
    "replicas of partitions": (
        growth("t", assigned=True),
        "give a topic more partitions",
        "t",
        "INVALID_REPLICA_ASSIGNMENT: replicas cannot be assigned",
    ),
    "partitions of a topic twice": (growth("t", "t"), "give a topic more partitions", "t", "INVALID_REQUEST: Duplicate"),
    "a creation, only tried": (creation("wide", 20, only=True), "create a topic", "wide", "INVALID_PARTITIONS: 20 more"),
    "the own log created": (creation(METADATA_TOPIC), "create a topic", METADATA_TOPIC, f"INVALID_TOPIC_EXCEPTION: {OWN_LOG}"),
    "the own log deleted": (removal(METADATA_TOPIC), "delete a topic", METADATA_TOPIC, f"INVALID_TOPIC_EXCEPTION: {OWN_LOG}"),
    "a topic deleted twice": (
        removal("t", "t"),
        "delete a topic",
        "t",
        "INVALID_REQUEST: the topic stands in the request",
    ),
    "a transaction that is too long": (
        initiation("tx", 900_001),
        "serve a transactional producer",
        "tx",
        "INVALID_TRANSACTION_TIMEOUT: transaction.timeout.ms=900001: accepted are 1 to 900000, which is transaction.max.",
    ),
    "a transaction without time": (
        initiation("tx", 0),
        "serve a transactional producer",
        "tx",
        "INVALID_TRANSACTION_TIMEOUT: transaction.timeout.ms=0",
    ),
    "an empty id": (
        initiation(""),
        "serve a transactional producer",
        "",
        "INVALID_REQUEST: a transactional id has 1 to 32767 bytes, not 0",
    ),
    "a long id": (
        initiation("x" * 32_768),
        "serve a transactional producer",
        "x" * 200,
        "INVALID_REQUEST: a transactional id has 1 to 32767 bytes, not 32768",
    ),
    "half a producer": (
        initiation("tx", expected=(5, -1)),
        "serve a transactional producer",
        "tx",
        "INVALID_REQUEST: producer 5 with epoch -1: name both, or none",
    ),
    "the own log in a transaction": (
        addition(METADATA_TOPIC),
        "serve a transactional producer",
        "tx",
        f"INVALID_TOPIC_EXCEPTION: {OWN_LOG}",
    ),
    "a partition of an unknown producer": (
        addition("t"),
        "serve a transactional producer",
        "tx",
        "INVALID_PRODUCER_ID_MAPPING: the transactional id is not known",
    ),
    "too many markers": (
        markers(*range(MARKERS_MAX + 1)),
        "end a transaction that does not hang",
        "t-0",
        f"INVALID_REQUEST: one request writes {MARKERS_MAX} markers",
    ),
    "a place without a meaning": (
        listing(-9),
        "tell an offset",
        "t",
        "UNSUPPORTED_VERSION: timestamp -9 of partition 1 stands for no place",
    ),
    "settings of a node": (
        alteration((4, "1", [("log.retention.ms", 0, "1")])),
        "change the settings of a node",
        "1",
        "INVALID_REQUEST: the settings of a node stand in its node.properties",
    ),
    "settings of all nodes": (
        alteration((4, "", [("log.retention.ms", 0, "1")])),
        "change the settings of a node",
        "",
        "INVALID_REQUEST: the settings of a node",
    ),
    "settings of a logger": (
        alteration((8, "1", [("a", 0, "b")])),
        "change configs of what has none",
        "1",
        "INVALID_REQUEST: resource type 8 has no configs here",
    ),
    "configs of the own log": (
        alteration((2, METADATA_TOPIC, [("retention.ms", 0, "1")])),
        "change the configs of a topic",
        METADATA_TOPIC,
        f"INVALID_TOPIC_EXCEPTION: {OWN_LOG}",
    ),
    "configs of a stranger": (description(4, "77"), "describe configs", "77", "INVALID_REQUEST: node 77 is not part of"),
    "a name that is none": (look_up("a b"), "look for a topic", "a b", "INVALID_TOPIC_EXCEPTION: topic name 'a b' must be"),
    "a voter that is none": (voter_removal(), "change the voters", "9", "UNSUPPORTED_VERSION: the voters are static"),
    "another cluster": (voter_removal("xx"), "change the voters", "9", "INCONSISTENT_CLUSTER_ID: cluster id xx is not that"),
    "no transactional id": (transactions(""), "describe a transaction", "", "INVALID_REQUEST: a transactional id has 1 to"),
    "too many ids": (
        transactions(*(f"tx-{number}" for number in range(DESCRIBED_MAX + 1))),
        "describe a transaction",
        f"tx-{DESCRIBED_MAX}",
        f"INVALID_REQUEST: one request describes {DESCRIBED_MAX} transactional ids",
    ),
    "a strange endpoint": (
        schema("describe_cluster", 1).DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=3),
        "describe the cluster",
        "hostile",
        "UNSUPPORTED_ENDPOINT_TYPE: endpoint type 3: accepted are 1 and 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_log_says_who_asked_and_why_it_is_refused(cluster: Cluster, name: str) -> None:
    request, what, subject, words = REFUSED[name]
    told = told_by(cluster)
    for _ in range(2):
        answers = cluster.send(
            cluster.leader(),
            ApiKey(type(request).__api_key__),
            request,
            version=int(type(request).__version__),
            client=CLIENT,
        )
        cluster.run(6_000, until=lambda answers=answers: bool(answers))
        assert answers
    (refusal,) = told
    assert (refusal.kind.what, refusal.subject, refusal.client) == (what, subject, CLIENT)
    assert refusal.why.startswith(words)
    error_message = next(iter(messages(answers[0])), None)
    if error_message is not None:
        assert error_message == refusal.why.partition(": ")[2]


def messages(answer: Any) -> list[str]:
    """The reasons that an answer gives, wherever it gives them."""
    if isinstance(answer, tuple):
        return [told for each in answer for told in messages(each)]
    if not is_dataclass(answer):
        return []
    found = [told for field in fields(answer) for told in messages(getattr(answer, field.name))]
    own = getattr(answer, "error_message", None)
    return [own, *found] if own else found


def test_who_is_refused_a_time_limit_can_ask_a_node_for_the_longest_one(cluster: Cluster) -> None:
    (result,) = cluster.ask(cluster.leader(), ApiKey.DESCRIBE_CONFIGS, description(4, "1"), version=4).results
    assert {each.name: each.value for each in result.configs}["transaction.max.timeout.ms"] == "900000"


# --- what there is no such topic for ---


def test_answers_with_room_for_it_say_what_does_not_exist(cluster: Cluster) -> None:
    made = schema("describe_producers", 0)
    topics = (made.TopicRequest(name="nope", partition_indexes=(0,)), made.TopicRequest(name="t", partition_indexes=(2,)))
    described = cluster.ask(cluster.leader(), ApiKey.DESCRIBE_PRODUCERS, made.DescribeProducersRequest(topics=topics))
    unknown = "topic 'nope' does not exist, as far as this node knows"
    assert messages(described) == [unknown, "topic 't' has 2 partitions from 0 on, and 2 is not served here"]
    quorum = schema("describe_quorum", 2)
    topic = quorum.TopicData(topic_name="nope", partitions=(quorum.PartitionData(partition_index=0),))
    asked = quorum.DescribeQuorumRequest(topics=(topic,))
    assert messages(cluster.ask(cluster.leader(), ApiKey.DESCRIBE_QUORUM, asked, version=2)) == [unknown]
    refused = result_of(send_to(cluster, cluster.leader(), GroupId("nope", 0), batch(b"x"), transactional_id=None))
    assert (refused.error, refused.error_message) == (E.UNKNOWN_TOPIC_OR_PARTITION, unknown)
    by_id = ProduceRequest(-1, 5_000, None, [ProduceTopic(None, b"i" * 16, [ProducePartition(0, memoryview(batch(b"x")))])])
    (part,) = cluster.ask(cluster.leader(), ApiKey.PRODUCE, by_id, version=13).topics[0].partitions
    assert (part.error, part.error_message) == (E.UNKNOWN_TOPIC_ID, "no topic of that id exists, as far as this node knows")


# --- producers that are fenced ---


def replaced(cluster: Cluster, name: str) -> tuple[TxnProducer, TxnProducer]:
    """Two producers of one transactional id, of which the second has fenced the first."""
    first, second = TxnProducer(cluster, name), TxnProducer(cluster, name)
    assert first.init() is second.init() is E.NONE
    assert first.producer_id == second.producer_id and first.epoch < second.epoch
    return first, second


@pytest.mark.parametrize("version", [11, 12])
def test_an_append_with_a_fenced_epoch_names_the_producer_its_epoch_and_the_newest(cluster: Cluster, version: int) -> None:
    group = cluster.leader().names.resolve_group("t", 0)
    first, second = replaced(cluster, f"fenced-{version}")
    names = f"producer {first.producer_id} has epoch 0, the newest is 1: another producer has the transactional id"
    told = told_by(cluster)
    for _ in range(2):
        late = records(b"x", sequence=0, producer_id=first.producer_id, epoch=0)
        refused = produce(cluster, group, late, version=version, transactional_id=first.transactional_id)
        assert refused.error is E.INVALID_PRODUCER_EPOCH
        assert refused.error_message is not None and refused.error_message.startswith(names)
    (refusal,) = told
    assert (refusal.kind.what, refusal.subject) == ("append records", "t")
    assert refusal.why.startswith(f"INVALID_PRODUCER_EPOCH: {names}") and refusal.client == cluster.client
    # The partition knows the newest one, which has written there.
    assert second.add(group) is second.produce(group, b"x") is E.NONE
    refused = produce(cluster, group, late, version=version, transactional_id=first.transactional_id)
    assert refused.error is E.INVALID_PRODUCER_EPOCH
    known = f"producer {first.producer_id}: the batch has epoch 0, the newest is 1; make a new producer"
    assert refused.error_message == known


def test_a_batch_of_an_open_transactions_producer_that_is_none_of_it_says_so(cluster: Cluster) -> None:
    group = cluster.leader().names.resolve_group("t", 0)
    producer = TxnProducer(cluster, "open")
    assert producer.init() is producer.add(group) is producer.produce(group, b"x") is E.NONE
    plain = records(b"x", sequence=1, producer_id=producer.producer_id, epoch=producer.epoch, transactional=False)
    refused = produce(cluster, group, plain, transactional_id=None)
    assert refused.error is E.INVALID_TXN_STATE
    assert (
        refused.error_message == f"producer {producer.producer_id} has an open transaction in t-0, and this batch is none of it"
    )


@pytest.mark.parametrize("version", [11, 12])
def test_an_append_under_another_transactional_id_names_the_id(cluster: Cluster, version: int) -> None:
    group = cluster.leader().names.resolve_group("t", 1)
    producer = TxnProducer(cluster, f"mine-{version}")
    assert producer.init() is E.NONE
    foreign = records(b"x", sequence=0, producer_id=producer.producer_id)
    refused = produce(cluster, group, foreign, version=version, transactional_id="yours")
    assert refused.error is E.INVALID_PRODUCER_ID_MAPPING
    assert refused.error_message is not None and "transactional id" in refused.error_message


def test_an_append_to_a_partition_that_is_not_in_the_transaction_says_which_and_in_which_state(cluster: Cluster) -> None:
    group = cluster.leader().names.resolve_group("t", 1)
    producer = TxnProducer(cluster, "elsewhere")
    assert producer.init() is E.NONE
    refused = produce(cluster, group, records(b"x", sequence=0, producer_id=producer.producer_id), transactional_id="elsewhere")
    assert refused.error is E.TRANSACTION_ABORTABLE
    assert refused.error_message is not None
    assert refused.error_message.startswith(f"t-1 is not part of a transaction of producer {producer.producer_id} epoch 0")
    assert "state is Empty" in refused.error_message


def test_a_gap_names_the_sequence_that_was_expected(cluster: Cluster) -> None:
    group = cluster.leader().names.resolve_group("t", 1)
    for sequence, error in ((0, E.NONE), (5, E.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        data = batch(b"x", producer_id=77_000, producer_epoch=0, base_sequence=sequence)
        answer = produce(cluster, group, data, transactional_id=None)
        assert answer.error is error
    assert answer.error_message == "producer 77000 epoch 0: expected sequence 1, got 5"


@pytest.mark.parametrize("raises", [False, True])
def test_what_a_fenced_producer_asks_the_coordinator_is_told_with_both_epochs(cluster: Cluster, raises: bool) -> None:
    group = cluster.leader().names.resolve_group("t", 0)
    first, second = replaced(cluster, f"asks-{raises}")
    first.raises = raises
    identity = f"PRODUCER_FENCED: producer {first.producer_id} has epoch 0, the newest is 1: another producer has the "
    for ask in (
        lambda: first.add(group, version=3),
        lambda: first.end(),
        lambda: first.init(expected=(first.producer_id, 7)),
    ):
        told = told_by(cluster)
        assert ask() is E.PRODUCER_FENCED
        (refusal,) = told
        assert (refusal.kind.subject, refusal.subject) == ("transactional_id", first.transactional_id)
        assert refusal.why.replace("epoch 7", "epoch 0").startswith(identity)
    told = told_by(cluster)
    assert second.end() is E.INVALID_TXN_STATE
    assert [each.why for each in told] == [
        f"INVALID_TXN_STATE: producer {second.producer_id} epoch 1 cannot commit: the state is Empty"
    ]


def test_a_retired_epoch_is_told_as_one_that_a_command_has_ended(cluster: Cluster) -> None:
    group = cluster.leader().names.resolve_group("t", 0)
    producer = TxnProducer(cluster, "retired")
    assert producer.init() is producer.add(group) is producer.produce(group, b"x") is E.NONE
    outcomes: list[Any] = []
    cluster.leader().kv.propose(Txn((), (EndTxn(producer.producer_id, producer.epoch, False),)), outcomes.append)
    cluster.run(5_000, until=lambda: producer.state() == "CompleteAbort")
    told = told_by(cluster)
    words = (
        f"producer {producer.producer_id}: a command has ended the transaction of epoch 0 and retired it; make a new producer"
    )
    assert producer.add(group) is E.PRODUCER_FENCED
    assert producer.end(True) is E.INVALID_TXN_STATE
    assert told[0].why.startswith(f"PRODUCER_FENCED: {words}")
    assert "epoch 0 cannot commit: the state is CompleteAbort; make a new producer" in told[1].why
    late = records(b"x", sequence=1, producer_id=producer.producer_id)
    refused = produce(cluster, group, late, transactional_id="retired")
    assert refused.error is E.INVALID_PRODUCER_EPOCH
    assert refused.error_message is not None and refused.error_message.startswith(words)


def test_a_marker_of_an_old_epoch_is_told_with_the_producer(cluster: Cluster) -> None:
    group = cluster.leader().names.resolve_group("t", 0)
    _, second = replaced(cluster, "marked")
    assert second.add(group) is second.produce(group, b"x") is E.NONE
    made = schema("write_txn_markers", 1)
    for epoch, error in ((0, "INVALID_PRODUCER_EPOCH"), (1, "INVALID_TXN_STATE")):
        told = told_by(cluster)
        topic = made.WritableTxnMarkerTopic(name="t", partition_indexes=(0,))
        marker = made.WritableTxnMarker(
            producer_id=second.producer_id, producer_epoch=epoch, transaction_result=False, topics=(topic,), coordinator_epoch=9
        )
        asked = made.WriteTxnMarkersRequest(markers=(marker,))
        cluster.ask(cluster.leader(), ApiKey.WRITE_TXN_MARKERS, asked, version=1)
        (refusal,) = told
        assert refusal.why.startswith(f"{error}: producer {second.producer_id} epoch {epoch}: ")
