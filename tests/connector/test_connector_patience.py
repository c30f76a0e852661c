"""Outages of the quorum: what a query asks is asked again, for as long as its options say, and ends in one line."""

from __future__ import annotations

import pytest

from connector.fakelog import FakeQuorum
from connector.fakequery import options_of
from pyspark_raftlake import connections, patience
from pyspark_raftlake.errors import QuorumUnavailable
from pyspark_raftlake.options import Patience, Quorum, parse_sink_options
from pyspark_raftlake.patience import PatientClient, is_outage, patiently
from raftlake.client.errors import NoReachableNode
from raftlake.errors import ConfigError, ErrorCode, RequestRejected

AWAY = NoReachableNode(["a:1", "b:2"], {"a:1": "Connect call failed", "b:2": "no connection within 4000 ms"})


class Asked:
    """A question that is answered after some failures, and the seconds that were slept before."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.count = 0
        self.slept: list[float] = []

    def __call__(self) -> str:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


def test_a_question_is_asked_again_until_the_quorum_is_back() -> None:
    asked = Asked(AWAY, RequestRejected(ErrorCode.LEADER_NOT_AVAILABLE, "no leader"), AWAY)
    assert patiently(asked, Patience(interval_ms=1_500), "topics", asked.slept.append) == "answer"
    assert (asked.count, asked.slept) == (4, [1.5, 1.5, 1.5])


def test_the_number_of_retries_and_their_pause_are_those_of_the_options() -> None:
    asked = Asked(*[AWAY] * 10)
    told = patience_of(**{"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "20"})
    with pytest.raises(QuorumUnavailable, match=r"6 tries"):
        patiently(asked, told, "list offsets", asked.slept.append)
    assert (asked.count, asked.slept) == (6, [0.02] * 5)
    once = Asked(AWAY)
    with pytest.raises(QuorumUnavailable, match=r"\(1 try, as 'fetchOffset.numRetries' says\)"):
        patiently(once, patience_of(**{"fetchOffset.numRetries": "0"}), "topics", once.slept.append)
    assert once.slept == []


def test_the_last_error_is_one_short_line_with_the_cause() -> None:
    far = NoReachableNode([f"node-{n}.example:9092" for n in range(60)], {f"node-{n}": "refused" for n in range(60)})
    for cause in (AWAY, far):
        with pytest.raises(QuorumUnavailable) as caught:
            patiently(Asked(*[cause] * 9), Patience(), "topics", lambda _: None)
        text = str(caught.value)
        assert "no reachable node among" in text
        assert len(text) <= 250
        assert "\n" not in text


def test_what_nodes_have_said_for_good_is_not_asked_again() -> None:
    asked = Asked(RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' does not exist"))
    with pytest.raises(RequestRejected, match="does not exist"):
        patiently(asked, Patience(), "topics", asked.slept.append)
    assert (asked.count, asked.slept) == (1, [])
    assert not is_outage(ValueError())


def test_a_client_of_a_query_asks_its_questions_so(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(patience, "patiently", lambda ask, told, what: patiently(ask, told, what, slept.append))
    quorum = FakeQuorum(t=1)
    answers = [AWAY, {0: 7}]

    def read_offset(topic: str, partitions: object) -> object:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    quorum.read_offset = read_offset  # type: ignore[method-assign, assignment]
    client = PatientClient(quorum, Patience())  # type: ignore[arg-type]
    assert client.read_offset("t", [0]) == {0: 7}
    assert slept == [1.0]
    assert client.producers is quorum.producers
    quorum.keys.topics_failures = [AWAY]
    assert client.kv.get("/raftlake/topics/u") is None
    quorum.keys.topics_failures = [AWAY, AWAY]
    assert client.kv.list("/raftlake/topics/", values=True).entries[0].key == "/raftlake/topics/t"
    assert slept == [1.0] * 4
    quorum.keys.topics_failures = [AWAY] * 9
    with pytest.raises(QuorumUnavailable, match=r"^the quorum could not be asked for kv get in"):
        client.kv.get("/raftlake/topics/t")


def test_a_query_waits_for_more_than_two_minutes_by_default() -> None:
    assert patience_of().total_ms >= 150_000
    sink = parse_sink_options({"kafka.bootstrap.servers": "a:1"})
    assert sink.quorum.patience.total_ms >= 150_000
    assert sink.delivery_ms_max >= 150_000


def test_time_limits_of_kafkas_clients_that_decide_about_survival_are_obeyed() -> None:
    told = patience_of(**{"kafka.default.api.timeout.ms": "5000", "kafka.request.timeout.ms": "700"})
    assert (told.ask_ms, told.request_ms, told.total_ms) == (5_000, 700, 23_000)
    limits = {"kafka.max.block.ms": "4000", "kafka.delivery.timeout.ms": "9000", "kafka.transaction.timeout.ms": "8000"}
    sink = parse_sink_options({"kafka.bootstrap.servers": "a:1", **limits})
    assert (sink.quorum.patience.total_ms, sink.delivery_ms_max, sink.transaction_ms_max) == (4_000, 9_000, 8_000)
    with pytest.raises(ConfigError, match="a whole number, 0 or above"):
        patience_of(**{"fetchOffset.numRetries": "-1"})


def test_the_client_of_a_running_query_looks_for_nodes_as_long_as_it_asks() -> None:
    limits = Patience(ask_ms=70_000, request_ms=900)
    running = connections.client_of(Quorum(bootstrap_servers="a:1", client_id="patience", patience=limits)).config
    assert (running.request_timeout_ms, running.attempt_timeout_ms) == (70_000, 900)
    assert running.unreachable_ms(was_reached=False) == 70_000
    before = connections.client_of(Quorum(bootstrap_servers="a:1", client_id="patience", is_running=False)).config
    assert before.unreachable_ms(was_reached=False) == 10_000


def patience_of(**options: str) -> Patience:
    return options_of(**options).quorum.patience
