"""`raftlake transactions` in front of a client in memory: what is listed, found and ended, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from typer.testing import CliRunner

from raftlake.cli import transactions as cli_transactions
from raftlake.client import HangingTransaction, PartitionDescription, TopicDescription, TransactionDescription
from raftlake.client.errors import NoReachableNode
from raftlake.client.kv_answers import unknown_write
from raftlake.client.types import EndTxn
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome, WrongState

NOW_MS = 1_700_000_000_000
OPEN = TransactionDescription(
    transactional_id="pay-1",
    producer_id=4000,
    epoch=3,
    state="Ongoing",
    timeout_ms=60_000,
    started_ms=NOW_MS - 12_400,
    partitions=(("t", 0), ("t", 2)),
)
ENDING = replace(OPEN, transactional_id="pay-2", producer_id=4001, state="PrepareCommit", partitions=(("u", 0),))
IDLE = replace(OPEN, transactional_id="old", producer_id=4002, state="CompleteCommit", started_ms=-1, partitions=())
HANGING = HangingTransaction(
    topic="t", partition=1, producer_id=17, epoch=2, start_offset=40, last_written_ms=NOW_MS - 90_000, coordinator_epoch=5
)


@dataclass
class FakeClient:
    known: list[TransactionDescription] = field(default_factory=lambda: [OPEN, ENDING, IDLE])
    hanging: list[HangingTransaction] = field(default_factory=lambda: [HANGING])
    commands: list[list[EndTxn]] = field(default_factory=list)
    aborted: list[HangingTransaction] = field(default_factory=list)
    is_settled: bool = True
    #: Raised instead of what the client does.
    txn_fails: Exception | None = None
    settle_fails: Exception | None = None

    @property
    def kv(self) -> FakeClient:
        return self

    def txn(self, compare: dict[str, int], ops: list[EndTxn]) -> None:
        assert compare == {}
        self.commands.append(ops)
        if self.txn_fails is not None:
            raise self.txn_fails

    def transactions(self, prefix: str) -> tuple[TransactionDescription, ...]:
        return tuple(each for each in self.known if each.started_ms >= 0 and each.transactional_id.startswith(prefix))

    def describe_transaction(self, name: str) -> TransactionDescription:
        for each in self.known:
            if each.transactional_id == name:
                return each
        raise RequestRejected(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {name!r}")

    def settle_transactions(self, names: list[str]) -> bool:
        assert names == [OPEN.transactional_id]
        if self.settle_fails is not None:
            raise self.settle_fails
        return self.is_settled

    def topics(self) -> list[TopicDescription]:
        return [self.describe_topic("t"), self.describe_topic("u")]

    def describe_topic(self, name: str) -> TopicDescription:
        parts = tuple(PartitionDescription(partition=index, leader_id=1, leader_epoch=1, replicas=(1,)) for index in range(2))
        return TopicDescription(name=name, topic_id=b"", partitions=parts)

    def hanging_transactions(self, topic: str, partitions: list[int]) -> tuple[HangingTransaction, ...]:
        return tuple(each for each in self.hanging if each.topic == topic and each.partition in partitions)

    def abort_hanging(self, found: HangingTransaction) -> None:
        self.aborted.append(found)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()

    @contextmanager
    def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Any]:
        yield client

    monkeypatch.setattr(cli_transactions, "connect", connect)
    monkeypatch.setattr(cli_transactions.time, "time", lambda: NOW_MS / 1000)
    return client


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli_transactions.app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("\t")] for line in text.splitlines()]


def test_what_is_under_way_is_listed_with_age_producer_and_partitions(client: FakeClient) -> None:
    assert cells(run("list")) == [
        ["Id", "Producer", "State", "Age", "Limit", "Partitions"],
        ["pay-1", "4000/3", "Ongoing", "12 s", "60 s", "t-0, t-2"],
        ["pay-2", "4001/3", "PrepareCommit", "12 s", "60 s", "u-0"],
    ]
    (told,) = json.loads(run("list", "pay-1", "--json"))
    assert told == {
        "transactionalId": "pay-1",
        "producerId": 4000,
        "epoch": 3,
        "state": "Ongoing",
        "startedMs": NOW_MS - 12_400,
        "timeoutMs": 60_000,
        "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 2}],
    }
    assert json.loads(run("list", "nobody", "--json")) == []


def test_a_clock_that_is_behind_the_nodes_shows_no_negative_age(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_transactions.time, "time", lambda: NOW_MS / 1000 - 3_600)
    assert cells(run("list", "pay-1"))[1][3] == "0 s"


def test_one_id_is_described_also_where_nothing_is_under_way(client: FakeClient) -> None:
    told = cells(run("describe", "old"))
    assert told[1:] == [
        ["producer", "4002, epoch 3"],
        ["state", "CompleteCommit"],
        ["age", "-"],
        ["time limit", "60 s"],
        ["partitions", "-"],
    ]
    assert json.loads(run("describe", "pay-2", "--json"))["state"] == "PrepareCommit"
    with pytest.raises(RequestRejected, match="there is no transactional id 'nope'"):
        run("describe", "nope")


@pytest.mark.parametrize(
    ("is_settled", "where"), [(True, "all partitions know it"), (False, "some partitions do not know it yet")]
)
def test_an_open_transaction_is_aborted_with_the_epoch_that_was_seen(client: FakeClient, is_settled: bool, where: str) -> None:
    client.is_settled = is_settled
    assert run("abort", "pay-1") == f"aborted pay-1, producer 4000 epoch 3: {where}\n"
    assert client.commands == [[EndTxn(4000, 3, False)]]
    assert json.loads(run("abort", "pay-1", "--json"))["isSettled"] is is_settled


def test_an_abort_that_no_answer_decides_says_what_to_look_at_and_when_to_repeat_it(client: FakeClient) -> None:
    client.known[0] = replace(OPEN, transactional_id="pay 1;x")
    client.txn_fails = unknown_write("POST", "/v1/txn", "no answer within 8000 ms")
    with pytest.raises(UnknownOutcome) as caught:
        run("abort", "pay 1;x")
    told = str(caught.value)
    assert told.startswith(
        "the abort of pay 1;x, producer 4000 epoch 3 was not answered (POST /v1/txn: no answer within 8000 ms)"
    )
    assert told.count("its outcome is not known") == 1 and "read the keys" not in told
    assert "`raftlake transactions describe 'pay 1;x'`. While it says epoch 3 and Ongoing, abort again" in told
    assert "a later epoch that is Ongoing is another one" in told


@pytest.mark.parametrize(
    "lost",
    [
        NoReachableNode(["127.0.0.1:9092"], {"127.0.0.1:9092": "refused"}),
        RequestRejected(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no description of transactions"),
    ],
)
def test_an_abort_that_is_decided_is_told_also_where_nobody_can_be_asked_for_its_partitions(
    client: FakeClient, lost: Exception
) -> None:
    client.settle_fails = lost
    told = run("abort", "pay-1")
    assert told.startswith("aborted pay-1, producer 4000 epoch 3: whether all partitions know it could not be asked (")
    assert json.loads(run("abort", "pay-1", "--json"))["isSettled"] is False


@pytest.mark.parametrize("name", ["pay-2", "old"])
def test_what_is_decided_or_over_is_not_aborted(client: FakeClient, name: str) -> None:
    with pytest.raises(WrongState, match=f"nothing was changed: '{name}' has no open transaction, its state is"):
        run("abort", name)
    assert client.commands == []


def test_what_hangs_is_found_in_all_topics_or_in_one(client: FakeClient) -> None:
    assert cells(run("find-hanging")) == [
        ["Topic", "Partition", "Offset", "Producer", "Written"],
        ["t", "1", "40", "17/2", "90 s"],
    ]
    assert cells(run("find-hanging", "--topic", "u"))[1:] == []
    (told,) = json.loads(run("find-hanging", "--topic", "t", "--json"))
    assert told == {
        "topic": "t",
        "partition": 1,
        "producerId": 17,
        "epoch": 2,
        "startOffset": 40,
        "lastWrittenMs": NOW_MS - 90_000,
        "coordinatorEpoch": 5,
    }


def test_only_what_hangs_is_ended_by_its_place(client: FakeClient) -> None:
    with pytest.raises(WrongState, match="in t-1 no transaction hangs that begins at offset 41"):
        run("abort-hanging", "t", "1", "41")
    assert client.aborted == []
    assert run("abort-hanging", "t", "1", "40") == "aborted the transaction of producer 17 epoch 2 in t-1\n"
    assert json.loads(run("abort-hanging", "t", "1", "40", "--json"))["startOffset"] == 40
    assert client.aborted == [HANGING, HANGING]
