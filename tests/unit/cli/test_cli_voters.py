"""`raftlake voters`: what it understands, and what it says of the quorum."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Sequence

import pytest

from raftlake.cli import voters as cli_voters
from raftlake.cli.voters import (
    CLOCK_MS,
    NOTE_S,
    NotYet,
    _fetching_directory,
    _follow,
    facts_of,
    observer_directory,
    parse_voter,
    require_for_peers,
    require_reachable,
)
from raftlake.client import QuorumDescription, ReplicaDescription
from raftlake.client.types import Address, PartitionDescription, TopicDescription
from raftlake.errors import ConfigError, ErrorCode, RequestRejected, WrongState
from raftlake.ports.driver import ListenerUse
from raftlake.runtime.listener.apis import listed
from raftlake.runtime.recovery.probe import CORRELATION

OLD, NEW = b"o" * 16, b"n" * 16


def replica(node_id: int, directory: bytes = OLD, fetched_at_ms: int = -1) -> ReplicaDescription:
    return ReplicaDescription(
        replica_id=node_id,
        directory_id=directory,
        log_end_offset=1,
        last_fetch_timestamp_ms=fetched_at_ms,
        last_caught_up_timestamp_ms=-1,
    )


def quorum(voters: list[ReplicaDescription], observers: list[ReplicaDescription]) -> QuorumDescription:
    return QuorumDescription(
        cluster_id="c",
        leader_id=1,
        leader_epoch=3,
        high_watermark=9,
        voters=tuple(voters),
        observers=tuple(observers),
        listeners={},
    )


@pytest.mark.parametrize(("text", "parts"), [("4@h:9092", (4, "h", 9092)), ("0@[::1]:1", (0, "::1", 1))])
def test_a_voter_is_named_by_number_and_address(text: str, parts: tuple[int, str, int]) -> None:
    assert parse_voter(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        *("4", "4@h", "@h:1", "x@h:1", "4@:1", "4@h:x", "-1@h:1", "4@127.0.0.1:22:33", "2147483648@h:1", "9" * 5_000 + "@h:1"),
        *(f"4@{'a' * 300}:1", "4@h:" + "1" * 5_000, "4@[::g]:1"),
    ],
)
def test_anything_else_is_refused_with_the_form_that_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match="NODE_ID@HOST:PORT"):
        parse_voter(text)


def test_a_new_voter_is_known_by_the_disk_it_fetches_with() -> None:
    before = quorum([replica(1), replica(2)], [])
    described = quorum([replica(1), replica(2)], [replica(4, NEW)])
    assert observer_directory(described, 4, None, before) == NEW
    assert observer_directory(described, 4, "b2xk", before) is None
    assert observer_directory(described, 5, None, before) is None


def test_a_disk_that_no_longer_fetches_is_not_taken_for_the_new_one() -> None:
    before = quorum([replica(1)], [replica(4, OLD, 100)])
    assert observer_directory(before, 4, None, before) is None
    appeared = quorum([replica(1)], [replica(4, OLD, 100), replica(4, NEW, 250)])
    assert observer_directory(appeared, 4, None, before) == NEW
    fetches_again = quorum([replica(1)], [replica(4, NEW, 300), replica(4, OLD, 100)])
    assert observer_directory(fetches_again, 4, None, appeared) == NEW


def test_who_votes_already_is_not_added() -> None:
    with pytest.raises(WrongState, match="a voter already"):
        observer_directory(quorum([replica(1), replica(2)], []), 2, None, quorum([], []))


def test_a_replaced_disk_is_added_after_the_old_one_was_removed() -> None:
    with pytest.raises(WrongState, match="raftlake voters remove 2"):
        observer_directory(quorum([replica(1), replica(2)], [replica(2, NEW)]), 2, None, quorum([], []))


def test_the_list_names_the_leader_the_voters_and_the_observers() -> None:
    rows = facts_of(quorum([replica(1), replica(2)], [replica(4, NEW)]))["replicas"]
    assert [(row["nodeId"], row["status"]) for row in rows] == [(1, "Leader"), (2, "Voter"), (4, "Observer")]
    assert rows[2]["directoryId"] == "bm5ubm5ubm5ubm5ubm5ubg"


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_that_does_not_exist_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match="1 to 65535"):
        parse_voter(f"4@host:{port}")


def test_an_address_where_nobody_answers_does_not_go_into_the_log() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(ConfigError, match="no node answers at"):
            require_reachable(4, "127.0.0.1", port, {}, patience_seconds=0)
        closed.listen()
        require_reachable(4, "127.0.0.1", port, {4: Address("127.0.0.1", port)})


def test_a_node_that_is_starting_is_given_time_to_listen() -> None:
    """It fetches a moment before it listens; the command refused it then."""
    with socket.socket() as starting:
        starting.bind(("127.0.0.1", 0))
        port = starting.getsockname()[1]
        listens = threading.Timer(0.1, starting.listen)
        listens.start()
        require_reachable(4, "127.0.0.1", port, {}, patience_seconds=10)
        listens.join()


def test_the_address_of_another_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="the address of node 1, not of node 4"):
        require_reachable(4, "h", 9, {1: Address("h", 9), 4: Address("h", 10)})


@pytest.mark.parametrize("use", list(ListenerUse))
def test_the_address_of_a_listener_for_clients_is_refused(use: ListenerUse) -> None:
    """The command asked for a minute, and then named a leader that could not be reached."""

    def requires(host: str, port: int) -> None:
        refused = pytest.raises(ConfigError, match=r"is a listener for clients.*the controller\.listener of node 4")
        with refused if use is ListenerUse.CLIENTS else contextlib.nullcontext():
            require_for_peers(4, host, port)

    serving([api_versions(use)], requires)


def api_versions(use: ListenerUse) -> bytes:
    """The answer to ApiVersions, version 0, of such a listener."""
    keys = b"".join(struct.pack(">hhh", api.key, api.version_min, api.version_max) for api in listed(use))
    body = struct.pack(">ihi", CORRELATION, 0, len(listed(use))) + keys
    return struct.pack(">i", len(body)) + body


def serving(answers: Sequence[bytes], requires: Callable[[str, int], None]) -> None:
    """Runs `requires` beside a program that answers one connection after the other."""
    with socket.socket() as node:
        node.bind(("127.0.0.1", 0))
        node.listen()

        def answer() -> None:
            for each in answers:
                with node.accept()[0] as connection:
                    connection.recv(1024)
                    connection.sendall(each)

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        requires(*node.getsockname())
        answering.join()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"])
def test_the_address_of_another_program_is_refused(answer: bytes) -> None:
    """`voters add` at an HTTP port asked for a minute, and then did not know the outcome."""

    def requires(host: str, port: int) -> None:
        with pytest.raises(ConfigError, match=r"does not speak the Kafka protocol: give .*controller\.listener of node 4"):
            require_for_peers(4, host, port, patience_seconds=0)

    serving([answer], requires)


def test_a_node_that_does_not_answer_yet_is_asked_again() -> None:
    serving([b"", api_versions(ListenerUse.PEERS)], lambda host, port: require_for_peers(4, host, port, patience_seconds=10))


class Leader:
    """What the command asks of a client: a quorum whose observer fetches as `fetched_at_ms` says, asked time after time."""

    def __init__(self, *fetched_at_ms: dict[bytes, int]) -> None:
        self._fetched = itertools.chain(fetched_at_ms[:-1], itertools.repeat(fetched_at_ms[-1]))

    def describe_quorum(self) -> QuorumDescription:
        return quorum([replica(1)], [replica(4, directory, at_ms) for directory, at_ms in next(self._fetched).items()])


@pytest.fixture
def quick_time(monkeypatch: pytest.MonkeyPatch) -> float:
    """Sleeping takes no time and moves the clock. Returns a deadline ten seconds off."""
    now = [0.0]
    monkeypatch.setattr(cli_voters.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(cli_voters.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return 10.0


def test_what_a_dead_node_sent_before_is_not_taken_for_life(quick_time: float) -> None:
    """Its last fetches lay in the leader's socket; its old disk became a voter that never fetched again."""
    dying = [{OLD: 100}, {OLD: 150}, {OLD: 160}, {OLD: 160}]
    alive = [{NEW: 400}, {NEW: 600}, {NEW: 900}, {NEW: 900}]
    assert _fetching_directory(Leader(*dying, *alive), 4, None, quick_time) == NEW  # type: ignore[arg-type]
    assert _fetching_directory(Leader(*dying), 4, None, quick_time + 100) is None  # type: ignore[arg-type]


def test_the_leaders_clock_is_not_taken_for_life(quick_time: float) -> None:
    """A leader counts in ms of two clocks, so that the time of a dead node's last fetch goes up and down by one."""
    to_and_fro = [{OLD: 1_000 + number % 2 * CLOCK_MS} for number in range(30)]
    alive = [{NEW: 9_000 + number * (CLOCK_MS + 1)} for number in range(4)]
    assert _fetching_directory(Leader(*to_and_fro, *alive), 4, None, quick_time) == NEW  # type: ignore[arg-type]


def test_why_a_change_is_not_made_yet_is_told_now_and_then(quick_time: float, capsys: pytest.CaptureFixture[str]) -> None:
    """A replica that catches up lags by another number in each answer."""
    tell = NotYet()
    for number in range(9):
        tell(f"node 4 is lagging, {9_000 - number} offsets behind the leader")
        cli_voters.time.sleep(NOTE_S / 4)
    told = capsys.readouterr().err.splitlines()
    assert told == [f"not yet: node 4 is lagging, {9_000 - number} offsets behind the leader" for number in (0, 4, 8)]


class Leaderless:
    """A client of a quorum whose nodes answer and do not lead."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        self.waited_ms: list[float] = []

    def describe_quorum(self, *, timeout_ms: float) -> QuorumDescription:
        self.waited_ms.append(timeout_ms)
        raise RequestRejected(self.code, "describe quorum")


def test_without_a_leader_a_change_ends_as_soon_as_no_election_can_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_voters.time, "monotonic", lambda: 1000.0)
    client = Leaderless(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(WrongState, match=r"nothing was changed: .* no node led the quorum for 15 s; a majority of the voters"):
        cli_voters.describe_at_leader(client, 1060.0)  # type: ignore[arg-type]
    with pytest.raises(WrongState, match="no node led the quorum for 3 s"):
        cli_voters.describe_at_leader(client, 1003.0)  # type: ignore[arg-type]
    assert client.waited_ms == [15_000, 3_000]
    with pytest.raises(RequestRejected):
        cli_voters.describe_at_leader(Leaderless(ErrorCode.INVALID_REQUEST), 1003.0)  # type: ignore[arg-type]


class Changing:
    """A quorum whose voters, and those of its one partition, are as given, asked time after time."""

    def __init__(self, of_quorum: list[set[int]], of_partition: list[set[int]]) -> None:
        self.waited_ms: list[float] = []
        self._of_quorum = itertools.chain(of_quorum, itertools.repeat(of_quorum[-1]))
        self._of_partition = itertools.chain(of_partition, itertools.repeat(of_partition[-1]))

    def topics(self, *, timeout_ms: float) -> list[TopicDescription]:
        self.waited_ms.append(timeout_ms)
        part = PartitionDescription(partition=0, leader_id=1, leader_epoch=1, replicas=())
        return [TopicDescription(name="t", topic_id=bytes(16), partitions=(part,))]

    def describe_quorum(self, topic: str = "", partition: int = 0, *, timeout_ms: float) -> QuorumDescription:
        self.waited_ms.append(timeout_ms)
        return quorum([replica(node) for node in sorted(next(self._of_partition if topic else self._of_quorum))], [])


def follow(client: Changing, deadline: float) -> None:
    _follow(client, deadline, False, lambda voters: (2, OLD) not in voters)  # type: ignore[arg-type]


def test_a_change_has_followed_also_where_another_one_came_behind_it(
    quick_time: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waited for the voters that the first change had made, which no partition had any more, and then said so."""
    follow(Changing([{1, 3, 4}, {3, 4}], [{1, 2, 3, 4}, {3, 4}]), quick_time)
    assert capsys.readouterr().out == "voters: 3, 4\n"


def test_a_leader_that_does_not_know_yet_of_its_own_removal_is_asked_again(
    quick_time: float, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(Changing([{2, 3, 4}, {3, 4}], [{2, 3, 4}, {3, 4}]), quick_time)
    assert capsys.readouterr().out == "voters: 3, 4\n"
    with pytest.raises(WrongState, match="by now the quorum has other voters"):
        follow(Changing([{2, 3}], [{2, 3}]), quick_time + 10)


def test_partitions_that_do_not_follow_are_named(quick_time: float) -> None:
    with pytest.raises(WrongState, match="1 partitions have not followed yet, t-0 among them"):
        follow(Changing([{3, 4}], [{2, 3, 4}]), quick_time)


class Refusing(Changing):
    """Its one partition is refused with each of these codes, one after the other; the topic goes with the last one."""

    def __init__(self, *codes: ErrorCode) -> None:
        super().__init__([{3, 4}], [{3, 4}])
        self.codes = list(codes)
        self.is_deleted = False

    def topics(self, *, timeout_ms: float) -> list[TopicDescription]:
        return [] if self.is_deleted else super().topics(timeout_ms=timeout_ms)

    def describe_quorum(self, topic: str = "", partition: int = 0, *, timeout_ms: float) -> QuorumDescription:
        if topic and self.codes:
            code = self.codes.pop(0)
            self.is_deleted = not self.codes
            raise RequestRejected(code, "describe quorum of t-0")
        return super().describe_quorum(topic, partition, timeout_ms=timeout_ms)


@pytest.mark.parametrize(
    "codes",
    [
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ],
)
def test_a_topic_that_is_deleted_while_its_partitions_follow_does_not_fail_the_change(
    quick_time: float, capsys: pytest.CaptureFixture[str], codes: list[ErrorCode]
) -> None:
    """It ended with UNKNOWN_TOPIC_OR_PARTITION, as if the change had not been made."""
    follow(Refusing(*codes), quick_time)
    assert capsys.readouterr().out == "voters: 3, 4\n"


def test_an_error_while_partitions_follow_says_that_the_change_was_made(quick_time: float) -> None:
    told = r"the change was made, but it could not be asked which .* \(UNSUPPORTED_VERSION: .*\); they go on by themselves"
    with pytest.raises(WrongState, match=told):
        follow(Refusing(ErrorCode.UNSUPPORTED_VERSION), quick_time)


def test_a_partition_that_nobody_leads_until_the_end_is_named(quick_time: float) -> None:
    with pytest.raises(WrongState, match="1 partitions have not followed yet, t-0 among them"):
        follow(Refusing(*[ErrorCode.LEADER_NOT_AVAILABLE] * 100), quick_time)


def test_what_is_asked_gets_what_is_left_of_the_time(quick_time: float) -> None:
    client = Changing([{3, 4}], [{2, 4}, {3, 4}])
    follow(client, quick_time)
    patience = cli_voters.PARTITION_PATIENCE_MS
    assert client.waited_ms == [10_000, 10_000, patience, 9_750, 9_750, patience]
    late = Changing([{3, 4}], [{3, 4}])
    follow(late, quick_time - 9)
    assert late.waited_ms == [750, 750, 750]
