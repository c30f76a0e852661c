"""KIP-405's five recovery scenarios ("Follower fetch protocol"): node processes, their disks, and a Delta table.

Each test is a scenario with the messages, offsets and leader epochs of the KIP. A and B are its brokers. What is compared
stands on their disks, in the Delta table and in the quorum's keys. `tests/trace/tier` tells the same stories in the simulator.

The first record of an epoch is the control record LeaderChange of its leader. In scenarios 1 and 2 it stands where the KIP has
the first message of that epoch (offsets 0, 3, 5 and 7), so all offsets are the KIP's. There A votes alone, each start of A is
the next epoch, and B only follows.

In scenarios 3 to 5, A and B vote. LE-0 is the first epoch, with LeaderChange for msg 0. The KIP's unclean elections are
`raftlake recover --unclean`: it writes KRaftVersion and KRaftVoters in LE-n. The node then elects itself in LE-n.1 and writes
LeaderChange. So the first message behind a recovery stands three offsets later than in the KIP. An out-of-sync broker is one
whose log is cut while it is down.

A segment is closed, and shipped, as soon as it has FLUSH bytes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import waitkit
from brokerkit import TOPIC, Broker, Brokers, message, wait_until
from leaderkit import leader_of
from raftlake import Client
from raftlake.errors import ErrorCode
from raftlake.raft.types import Offset
from raftlake.storage.directory import FileLogDirectory
from raftlake.wire.batches import iterate_headers
from raftlake.wire.fetch import FetchPartitionResult
from shownkit import (
    Epochs,
    consumed,
    epoch_ends,
    key_lines,
    log_data,
    log_end,
    log_epochs,
    log_lines,
    producers,
    refusal,
    require_clean,
    segment_starts,
    served_lines,
    superseded_lines,
    table_lines,
    to_consumers,
    wait_copied,
)

pytestmark = pytest.mark.process
FLUSH = 65_536
#: One message of that size is enough to let go of all closed segments.
KEPT = 1_000


class Scene:
    """The brokers of one scenario, its table, and the names of its epochs."""

    def __init__(self, place: Path, **settings: str) -> None:
        self.tables = place / "tables"
        self.tables.mkdir(parents=True)
        self.epochs = Epochs()
        self.brokers = Brokers(
            place,
            {
                "tier.uri": str(self.tables),
                "tier.flush.bytes": str(FLUSH),
                # Nothing is closed because time passes, and nobody is elected because the machine is slow.
                "tier.target.lag.ms": "1000000000",
                "quorum.fetch.timeout.ms": "60000",
                # The voters are static: their set takes no offset before a recovery.
                "quorum.kraft.version": "0",
                **settings,
            },
        )

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        self.brokers.__exit__()

    def log(self, broker: Broker) -> list[str]:
        return log_lines(broker, self.epochs)

    def leader_epochs(self, broker: Broker) -> str:
        return log_epochs(broker, self.epochs)

    def table(self) -> list[str]:
        return table_lines(self.tables, self.epochs)

    def superseded(self, incarnation: int) -> list[str]:
        return superseded_lines(self.tables, incarnation, self.epochs)

    def keys(self, leader: Broker) -> list[str]:
        with Client(leader.address, request_timeout_ms=60_000) as client:
            return key_lines(client, self.tables, self.epochs)

    def alone(self) -> Broker:
        """A votes alone and leads in LE-0."""
        (a,) = self.brokers.begin(1)
        with Client(a.address, request_timeout_ms=60_000) as client:
            client.create_topic(TOPIC)
        for number in range(4):
            self.epochs.call(number + 1, f"LE-{number}")
        assert self.log(a) == ["0: LeaderChange LE-0"]
        return a

    def pair(self) -> tuple[Broker, Broker] | None:
        """A and B vote, and A leads in LE-0. None where a slow machine has elected twice."""
        pair = self.brokers.begin(2)
        with Client([each.address for each in pair], request_timeout_ms=60_000) as client:
            client.create_topic(TOPIC)
            leader = leader_of(client, TOPIC)
        a, b = sorted(pair, key=lambda each: each.node_id != leader)
        wait_until(lambda: log_end(a) == log_end(b) > 0, "the first record of both")
        headers = list(iterate_headers(log_data(a)))
        self.epochs.call(headers[0].leader_epoch, "LE-0")
        return (a, b) if len(headers) == 1 else None

    def elect(self, a: Broker) -> None:
        """The one voter begins the next epoch."""
        a.kill()
        a.start()

    def cut(self, broker: Broker, offset: int) -> None:
        """What the crash of a stopped broker took, or what it never had as an out-of-sync one."""
        directory = FileLogDirectory(broker.directory, post=None)
        (group,) = [group for group in directory.groups() if group.topic == TOPIC]
        directory.open(group).truncate_to(Offset(offset))
        directory.close()

    def recover(self, broker: Broker, name: str, end: int) -> str:
        """An unclean election: the broker is the only voter, and its log goes on to `end` with its LeaderChange. Why its table
        stands in the way of a clean one."""
        told = broker.recover_unclean()
        self.epochs.call(told["newEpoch"], name)
        self.epochs.call(told["newEpoch"] + 1, f"{name}.1")
        broker.start()
        wait_until(lambda: log_end(broker) == end, f"the log of {broker.node_id} to end at {end}")
        return str(told["tableDiffers"])


def begin_pair(place: Path, **settings: str) -> tuple[Scene, Broker, Broker]:
    """A new scene where A leads in the first epoch."""
    tries = iter(range(waitkit.ATTEMPTS))

    def story() -> tuple[Scene, Broker, Broker] | None:
        scene = Scene(place / f"try-{next(tries)}", **settings)
        try:
            pair = scene.pair()
        except BaseException:
            scene.brokers.__exit__()
            raise
        if pair is None:
            scene.brokers.__exit__()
            return None
        return (scene, *pair)

    found: tuple[Scene, Broker, Broker] = waitkit.attempt(story, "two voters and one election")
    return found


def grow(scene: Scene, a: Broker, follower: Broker | None = None) -> None:
    """Scenarios 1 and 2 up to offset 7: segments 0 to 2 and 3 to 5 are shipped. A follower is stopped when it has offset 3."""
    assert [a.produce(message("msg-1", 0)), a.produce(message("msg-2", 1, FLUSH))] == [1, 2]
    wait_copied(a, 3)
    scene.elect(a)
    if follower is not None:
        wait_until(lambda: log_end(follower) == 4, "offset 3 at the follower")
        follower.stop()
    # With the LeaderChange of the next epoch, and not before, the segment is large enough to be closed.
    (leader_change,) = [header.size for header in iterate_headers(log_data(a)) if header.base_offset == 3]
    assert a.produce(message("msg-4", 2, FLUSH - 1 - leader_change)) == 4
    scene.elect(a)
    wait_copied(a, 6)
    assert a.produce(message("msg-6", 3)) == 6
    scene.elect(a)


def test_scenario_1_new_empty_follower(tmp_path: Path) -> None:
    """Offsets and epochs are the KIP's. B begins at A's local start 3, behind seg-0-2."""
    with Scene(tmp_path, **{"local.retention.bytes": str(KEPT)}) as scene:
        a = scene.alone()
        grow(scene, a)
        wait_until(lambda: segment_starts(a) == [3, 6], "the leader's log to begin at 3")
        b = scene.brokers.add(2, quorum_voters=a.voter)
        b.start()
        wait_until(lambda: log_end(b) == 8, "the follower to have offset 7")
        local = ["3: LeaderChange LE-1", "4: msg-4 LE-1", "5: LeaderChange LE-2", "6: msg-6 LE-2", "7: LeaderChange LE-3"]
        assert scene.log(a) == scene.log(b) == local
        assert scene.table() == [
            "0: LeaderChange LE-0 incarnation 0",
            "1: msg-1 LE-0 incarnation 0",
            "2: msg-2 LE-0 incarnation 0",
            "3: LeaderChange LE-1 incarnation 0",
            "4: msg-4 LE-1 incarnation 0",
            "5: LeaderChange LE-2 incarnation 0",
        ]
        assert scene.keys(a) == ["0..5: LE-0,0 LE-1,3 LE-2,5", "seg-0-2: LE-0,0", "seg-3-5: LE-1,3 LE-2,5"]
        check_follower(scene, a, b, start=3)
        assert producers(b) == [(0, 1), (1, 2), (2, 4), (3, 6)], "of what only the table has, too"
        assert scene.leader_epochs(b) == "LE-0,3 LE-1,3 LE-2,5 LE-3,7"


def check_follower(scene: Scene, a: Broker, b: Broker, start: int) -> None:
    """B went through the tier once. It knows where all leader epochs end, and gives consumers what A gives them, from table
    and log. Both are stopped then."""
    assert f"{TOPIC}-0: begins at {start}, with the state from the remote tier" in b.log.read_text()
    assert re.search(r"^raftlake_tier_recoveries_total 1(\.0)?$", b.get("/metrics") or "", re.MULTILINE)
    rows = [line.removesuffix(" incarnation 0") for line in scene.table()]
    whole = rows[:start] + scene.log(a)
    assert served_lines(a, len(whole), scene.epochs) == served_lines(b, len(whole), scene.epochs) == to_consumers(whole)
    assert epoch_ends(b, len(whole) - 1, scene.epochs, ["LE-0", "LE-1", "LE-3"]) == [3, 5, None]
    require_clean(scene.tables, a)
    b.stop()
    a.stop()
    assert producers(a) == producers(b)


def test_scenario_2_out_of_sync_follower_catching_up(tmp_path: Path) -> None:
    """Offsets and epochs are the KIP's. A's disk lets go of each segment that is shipped, so step 1 has 0 to 5 in the table."""
    with Scene(tmp_path, **{"local.retention.bytes": "0"}) as scene:
        a = scene.alone()
        b = scene.brokers.add(2, quorum_voters=a.voter, local_retention_bytes="-2")
        b.start()
        grow(scene, a, b)
        assert a.produce(message("msg-8", 4, FLUSH)) == 8
        wait_until(lambda: segment_starts(a)[-1] == 9, "the segment of offset 8 to be closed")
        assert a.produce(message("msg-9", 5)) == 9
        old = ["0: LeaderChange LE-0", "1: msg-1 LE-0", "2: msg-2 LE-0", "3: LeaderChange LE-1"]
        assert (scene.log(b), scene.leader_epochs(b), producers(b)) == (old, "LE-0,0 LE-1,3", [(0, 1), (1, 2)])
        assert a.epoch_end(scene.epochs.number("LE-1")) == (scene.epochs.number("LE-1"), 5), "beyond the follower's log"
        wait_copied(a, 9)
        assert [a.produce(message("msg-10", 6)), a.produce(message("msg-11", 7))] == [10, 11]
        wait_until(lambda: segment_starts(a) == [9], "the leader's log to begin at 9")
        b.start()
        wait_until(lambda: log_end(b) == 12, "the follower to have offset 11")
        assert scene.log(a) == scene.log(b) == ["9: msg-9 LE-3", "10: msg-10 LE-3", "11: msg-11 LE-3"]
        assert scene.table() == [
            "0: LeaderChange LE-0 incarnation 0",
            "1: msg-1 LE-0 incarnation 0",
            "2: msg-2 LE-0 incarnation 0",
            "3: LeaderChange LE-1 incarnation 0",
            "4: msg-4 LE-1 incarnation 0",
            "5: LeaderChange LE-2 incarnation 0",
            "6: msg-6 LE-2 incarnation 0",
            "7: LeaderChange LE-3 incarnation 0",
            "8: msg-8 LE-3 incarnation 0",
        ]
        assert scene.keys(a) == [
            "0..8: LE-0,0 LE-1,3 LE-2,5 LE-3,7",
            "seg-0-2: LE-0,0",
            "seg-3-5: LE-1,3 LE-2,5",
            "seg-6-8: LE-2,6 LE-3,7",
        ]
        check_follower(scene, a, b, start=9)
        assert producers(b) == [(3, 6), (4, 8), (5, 9), (6, 10), (7, 11)], "the last five, of table and log"
        assert scene.leader_epochs(b) == "LE-3,9"


def test_scenario_3_multiple_hard_failures(tmp_path: Path) -> None:
    """KIP-101's scenario 2. Offset 1 of LE-0, which was shipped, is lost. Msg 3 and msg 4 are at 4 and 5, and not at 1 and 2.

    In the KIP the table keeps both copies of offset 1. Here seg-0-1 of LE-0 is superseded, and what B ships begins at 0.
    """
    scene, a, b = begin_pair(tmp_path)
    with scene:
        assert a.produce(message("msg-1", 0, FLUSH)) == 1
        wait_copied(a, 2)
        assert a.produce(message("msg-2", 1)) == 2
        wait_until(lambda: log_end(b) == 3, "offset 2 at B")
        shipped = ["0: LeaderChange LE-0 incarnation 0", "1: msg-1 LE-0 incarnation 0"]
        assert (scene.table(), scene.keys(a)) == (shipped, ["0..1: LE-0,0", "seg-0-1: LE-0,0"])
        # Step 2. Both crash, and B comes back without offsets 1 and 2.
        b.kill()
        a.kill()
        scene.cut(b, 1)
        refused = b.recover()
        assert refused.returncode == 1
        assert f"{TOPIC}-0: its table shows offsets up to 2, this log ends at 1: 1 record would leave" in refused.stderr
        assert scene.log(b) == ["0: LeaderChange LE-0"], "no election is clean"
        scene.recover(b, "LE-1", end=4)
        assert scene.table() == shipped
        # Step 3. A cuts offsets 1 and 2 of LE-0. The table does not bring the sequence of msg 1 back.
        assert b.produce(message("msg-3", 0)) == 4
        a.start()
        wait_until(lambda: log_end(a) == 5, "A to have what B has")
        history = ["0: LeaderChange LE-0", "1: KRaftVersion LE-1", "2: KRaftVoters LE-1", "3: LeaderChange LE-1.1"]
        history += ["4: msg-3 LE-1.1"]
        assert scene.log(a) == scene.log(b) == history
        # Step 4. Msg 4 comes, and B ships a segment.
        assert b.produce(message("msg-4", 1, FLUSH)) == 5
        wait_copied(b, 6)
        history += ["5: msg-4 LE-1.1"]
        assert scene.table() == [f"{line} incarnation 1" for line in history]
        assert scene.superseded(0) == shipped
        sequence = "LE-0,0 LE-1,1 LE-1.1,3"
        assert scene.keys(b) == [f"0..5: {sequence}", f"seg-0-5: {sequence}"]
        check_pair(scene, a, b, history, sequence, [(0, 4), (1, 5)])


def check_pair(scene: Scene, a: Broker, b: Broker, history: list[str], sequence: str, batches: list[tuple[int, int]]) -> None:
    """A follows B, and has its whole log. Kafka clients read it. Both are stopped then."""
    messages = [line for line in history if " msg-" in line]
    assert consumed(b, len(history), scene.epochs) == messages
    require_clean(scene.tables, b)
    wait_until(lambda: log_end(a) == len(history), "A to have what B has")
    a.stop()
    b.stop()
    for each in (a, b):
        assert scene.log(each) == history
        assert scene.leader_epochs(each) == sequence
        assert producers(each) == batches


def test_scenario_4_unclean_leader_election_with_truncation(tmp_path: Path) -> None:
    """B has offset 0 alone. Msg 4 and msg 5 of LE-1 are at 4 and 5, and not at 1 and 2, so B ships offsets 0 to 4."""
    scene, a, b = begin_pair(tmp_path, **{"local.retention.bytes": str(KEPT)})
    with scene:
        assert [a.produce(message("msg-1", 0)), a.produce(message("msg-2", 1, FLUSH))] == [1, 2]
        wait_copied(a, 3)
        assert a.produce(message("msg-3", 2)) == 3
        shipped = [f"{line} incarnation 0" for line in ("0: LeaderChange LE-0", "1: msg-1 LE-0", "2: msg-2 LE-0")]
        assert scene.table() == shipped
        # Step 2. A stays down. B, which is out of sync, becomes the leader, and ships a segment.
        b.kill()
        a.kill()
        scene.cut(b, 1)
        scene.recover(b, "LE-1", end=4)
        assert b.produce(message("msg-4", 0, FLUSH)) == 4
        history = ["0: LeaderChange LE-0", "1: KRaftVersion LE-1", "2: KRaftVoters LE-1", "3: LeaderChange LE-1.1"]
        history += ["4: msg-4 LE-1.1"]
        wait_copied(b, 5)
        assert scene.log(b) == history
        assert scene.table() == [f"{line} incarnation 1" for line in history]
        assert scene.superseded(0) == shipped
        sequence = "LE-0,0 LE-1,1 LE-1.1,3"
        assert scene.keys(b) == [f"0..4: {sequence}", f"seg-0-4: {sequence}"]
        # Step 3. With msg 5, B's first local segment expires. Clients see one history, and none of A's messages.
        assert b.produce(message("msg-5", 1, KEPT)) == 5
        wait_until(lambda: segment_starts(b) == [5], "B's log to begin at 5")
        history += ["5: msg-5 LE-1.1"]
        assert scene.log(b) == history[5:]
        assert served_lines(b, 6, scene.epochs) == to_consumers(history)
        assert consumed(b, 6, scene.epochs) == history[4:]
        lost = scene.epochs.number("LE-0")
        assert b.epoch_end(lost) == (lost, 1), "where a consumer of A's messages has to go back to"
        assert "truncat" in refusal(b, 3, lost)
        require_clean(scene.tables, b)
        b.stop()
        assert (scene.leader_epochs(b), producers(b)) == ("LE-1.1,5", [(0, 4), (1, 5)])


def test_scenario_5_log_divergence_in_remote_storage(tmp_path: Path) -> None:
    """Two unclean elections. B's msg 4 to msg 6 of LE-1 are at 5 to 7, and not at 2 to 4: seg-0-6 in place of its seg-0-3.

    A's msg 7 and msg 8 of LE-2 are at 8 and 9, and not at 5 and 6: seg-4-8 in place of seg-4-5, and a local start of 9.
    """
    scene, a, b = begin_pair(tmp_path, **{"local.retention.bytes": str(KEPT)})
    with scene:
        assert [a.produce(message("msg-1", 0)), a.produce(message("msg-2", 1))] == [1, 2]
        assert a.produce(message("msg-3", 2, FLUSH)) == 3
        wait_copied(a, 4)
        assert a.produce(message("msg-4", 3)) == 4
        history = ["0: LeaderChange LE-0", "1: msg-1 LE-0", "2: msg-2 LE-0", "3: msg-3 LE-0"]
        assert scene.table() == [f"{line} incarnation 0" for line in history]
        b.kill()
        a.kill()
        ship_another_history(scene, b)
        # Step 3. B is down, and A comes back without knowing LE-1. Its segment comes back into the table.
        b.kill()
        assert "has other records than this log from offset 2 on" in scene.recover(a, "LE-2", end=8)
        check_replaced(scene, a)
        assert a.produce(message("msg-7", 4, FLUSH)) == 8
        wait_copied(a, 9)
        assert a.produce(message("msg-8", 5, KEPT)) == 9
        more = ["4: msg-4 LE-0", "5: KRaftVersion LE-2", "6: KRaftVoters LE-2", "7: LeaderChange LE-2.1", "8: msg-7 LE-2.1"]
        assert scene.table() == [f"{line} incarnation 0" for line in history] + [f"{line} incarnation 2" for line in more]
        assert scene.keys(a) == [
            "0..8: LE-0,0 LE-2,5 LE-2.1,7",
            "seg-0-3: LE-0,0",
            "seg-4-8: LE-0,4 LE-2,5 LE-2.1,7",
        ]
        assert scene.superseded(1) == ANOTHER
        # Step 4. B is reimaged. A's local segments expire, and B goes on from A's local start.
        wait_until(lambda: segment_starts(a) == [9], "A's log to begin at 9")
        reimaged = scene.brokers.add(2, "reimaged", quorum_voters=a.voter, quorum_kraft_version="1")
        reimaged.start()
        wait_until(lambda: log_end(reimaged) == 10, "the reimaged broker to have offset 9")
        last = ["9: msg-8 LE-2.1"]
        assert scene.log(a) == scene.log(reimaged) == last
        check_fenced(scene, a, reimaged)
        assert served_lines(reimaged, 10, scene.epochs) == to_consumers(history + more + last)
        assert epoch_ends(reimaged, 9, scene.epochs, ["LE-0", "LE-1", "LE-2", "LE-2.1"]) == [5, 5, 7, None]
        require_clean(scene.tables, a)
        reimaged.stop()
        assert producers(reimaged) == [(1, 2), (2, 3), (3, 4), (4, 8), (5, 9)]
        assert scene.leader_epochs(reimaged) == "LE-2.1,9"


#: What B ships in step 2 of scenario 5.
ANOTHER = [
    f"{line} incarnation 1"
    for line in (
        "0: LeaderChange LE-0",
        "1: msg-1 LE-0",
        "2: KRaftVersion LE-1",
        "3: KRaftVoters LE-1",
        "4: LeaderChange LE-1.1",
        "5: msg-4 LE-1.1",
        "6: msg-5 LE-1.1",
    )
]


def ship_another_history(scene: Scene, b: Broker) -> None:
    """Step 2. B has offsets 0 and 1, becomes the leader, and ships a segment with the offsets of A's."""
    scene.cut(b, 2)
    scene.recover(b, "LE-1", end=5)
    assert [b.produce(message("msg-4", 1)), b.produce(message("msg-5", 2, FLUSH))] == [5, 6]
    wait_copied(b, 7)
    assert b.produce(message("msg-6", 3)) == 7
    assert scene.table() == ANOTHER
    assert scene.keys(b) == ["0..6: LE-0,0 LE-1,2 LE-1.1,4", "seg-0-6: LE-0,0 LE-1,2 LE-1.1,4"]
    assert scene.superseded(0) == [
        "0: LeaderChange LE-0 incarnation 0",
        "1: msg-1 LE-0 incarnation 0",
        "2: msg-2 LE-0 incarnation 0",
        "3: msg-3 LE-0 incarnation 0",
    ]


def check_replaced(scene: Scene, a: Broker) -> None:
    """A consumer that has read B's msg 6 stands where A's log ends now. It is told at once, and not with A's next message."""
    diverging = a.fetch(8, last_fetched_epoch=scene.epochs.number("LE-1.1")).diverging_epoch
    assert diverging is not None, "A's records at the consumer's offsets are others"
    assert (diverging.epoch, diverging.end_offset) == (scene.epochs.number("LE-0"), 5)


def read_in(broker: Broker, epoch: int) -> FetchPartitionResult | None:
    """What a consumer of offset 3 gets that has read in `epoch` before; None for nothing yet."""
    found = broker.fetch(3, last_fetched_epoch=epoch)
    return found if found.records or found.diverging_epoch is not None else None


def check_fenced(scene: Scene, a: Broker, b: Broker) -> None:
    """A consumer of offset 3 in LE-1 is fenced at B and at A: LE-0 ends at 5, and LE-1 is no part of the history."""
    le0, le1 = scene.epochs.number("LE-0"), scene.epochs.number("LE-1")
    for broker in (a, b):
        assert broker.fetch(3, current_leader_epoch=le1).error is ErrorCode.FENCED_LEADER_EPOCH
        found = broker.fetch(3, last_fetched_epoch=le1)
        assert (found.error, found.diverging_epoch, bytes(found.records or b"")) == (ErrorCode.NONE, (le0, 5), b"")
        # An answer comes without records where the file takes longer to read than a Fetch waits.
        found = wait_until(lambda asked=broker: read_in(asked, le0), "the records of LE-0 from the table")
        assert found.diverging_epoch is None
    assert a.epoch_end(le1) == (le0, 5)
    # A Kafka client that has read B's msg 5, which was at 6.
    assert "truncat" in refusal(a, 7, scene.epochs.number("LE-1.1"))
