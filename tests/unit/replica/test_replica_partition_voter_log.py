"""Voter sets in the bytes of a log: written by a leader, read by a follower and at start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from raftkit.replica import key, voter_set
from raftlake.ports.driver import BatchSpan, LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_VOTERS, NodeId, Offset, VoterEndpoint, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.partition.partition import split_batches
from raftlake.replica.partition.start_points import LogFacts
from raftlake.replica.partition.voter_log import entries_of
from raftlake.storage.directory import FileLogDirectory
from raftlake.wire.batches import Record, build_batch, iterate_headers, leader_change_batch, validate, voters_batch

HERE = (VoterEndpoint("PEERS", "h", 9),)
FIRST = NO_VOTERS.with_voter(key(1, b"a"), HERE).with_voter(key(2, b"b"), ())
SECOND = FIRST.with_voter(key(3, b"c"), (*HERE, VoterEndpoint("OTHER", "i", 10)))
INITIAL = voter_set((7,))
#: Of four batches and a few more: the last set stands behind the last point.
SEGMENT_BYTES = 4_500
GROUP = GroupId("t", 0, bytes(range(16)))


def batches() -> list[bytes]:
    """Offsets 0-2: the first LeaderChange with its voters; 3: data; 4: a new set; 5: a LeaderChange alone."""
    return [
        leader_change_batch(0, 1, -1, 1, (1, 2), (1,), entries_of(FIRST)),
        bytes(build_batch([Record(value=b"x" * 100)], base_offset=3, leader_epoch=1, timestamp_ms=5)),
        voters_batch(4, 1, -1, entries_of(SECOND)),
        leader_change_batch(5, 2, -1, 2, (1, 2, 3), (2, 3)),
    ]


def log_of(path: Path, chunks: Sequence[bytes]) -> LogStore:
    log = FileLogDirectory(path, post=None).open(GROUP)
    for chunk in chunks:
        headers = list(iterate_headers(chunk))
        spans = [BatchSpan(h.base_offset, h.end_offset, h.leader_epoch, h.timestamp_ms_max, h.size) for h in headers]
        log.append([chunk], spans)
    return log


def read_voters(log: LogStore, history: VoterHistory, start: int = 0) -> None:
    LogFacts("t-0", log, history, Offset(start)).restore(0, with_voters=True)


def test_the_voters_of_a_log_are_found_at_start(tmp_path: Path) -> None:
    history = VoterHistory(INITIAL)
    read_voters(log_of(tmp_path, batches()), history)
    assert history.latest == SECOND and history.latest_offset == 4
    assert [history.at(Offset(offset)) for offset in (0, 1, 4, 5)] == [None, FIRST, FIRST, SECOND]


def test_the_reading_begins_where_a_snapshot_ends(tmp_path: Path) -> None:
    history = VoterHistory(INITIAL)
    history.record(Offset(2), FIRST)
    read_voters(log_of(tmp_path, batches()), history, 3)
    assert [history.at(Offset(offset)) for offset in (3, 5)] == [FIRST, SECOND]


def test_a_log_without_control_records_leaves_the_initial_set(tmp_path: Path) -> None:
    history = VoterHistory(INITIAL)
    read_voters(log_of(tmp_path, [leader_change_batch(0, 1, -1, 7, (7,), (7,))]), history)
    assert (history.latest, history.kraft_version) == (INITIAL, 0)


def received(chunks: Sequence[bytes]) -> list[VoterSet | None]:
    answer = memoryview(b"".join(chunks))
    return [batch.voters for batch in split_batches(answer, validate(answer))]


def test_a_followers_core_is_told_which_batches_set_voters() -> None:
    assert received(batches()) == [FIRST, None, SECOND, None]


def test_a_control_batch_that_cannot_be_read_ends_the_answer() -> None:
    damaged = build_batch([Record(key=b"\0\0\0\6", value=b"\0\0\1\0")], base_offset=3, timestamp_ms=-1, control=True)
    assert received([batches()[0], bytes(damaged), batches()[2]]) == [FIRST]


ALL = [FIRST, SECOND, SECOND.without(NodeId(1)), FIRST.with_voter(key(4, b"d"), HERE)]


def log_with_points(directory: FileLogDirectory) -> tuple[LogStore, LogFacts, VoterHistory]:
    """Sets at 0, 4, 8 and 12, three batches of data behind each, and a point where each segment begins."""
    log, history = directory.open(GROUP), VoterHistory(INITIAL)
    facts = LogFacts("t-0", log, history, Offset(0))
    for number, voters in enumerate(ALL):
        add_voters(log, facts, history, voters)
        for _ in range(3):
            facts.appended(append(log, data_batch(log, 900)))
        assert log.end_offset == 4 * number + 4
    assert list(log.start_points.offsets) == list(log.segment_bases)[1:]
    assert 8 < log.segment_bases[-1] < 12 and len(log.segment_bases) > 2
    return log, facts, history


def append(log: LogStore, batch: bytes) -> Sequence[Offset]:
    (header,) = iterate_headers(batch)
    return log.append(
        [batch], [BatchSpan(header.base_offset, header.end_offset, header.leader_epoch, header.timestamp_ms_max, header.size)]
    )


def add_voters(log: LogStore, facts: LogFacts, history: VoterHistory, voters: VoterSet) -> None:
    """As a replica does: the set counts first, then it is appended."""
    offset = log.end_offset
    history.record(offset, voters)
    facts.appended(append(log, bytes(voters_batch(offset, 1, -1, entries_of(voters)))))


def data_batch(log: LogStore, size: int) -> bytes:
    return bytes(build_batch([Record(value=bytes(size))], base_offset=log.end_offset, leader_epoch=1, timestamp_ms=5))


def restarted(path: Path) -> tuple[FileLogDirectory, LogStore, LogFacts, VoterHistory]:
    directory = FileLogDirectory(path, post=None, segment_bytes=SEGMENT_BYTES)
    log, history = directory.open(GROUP), VoterHistory(INITIAL)
    facts = LogFacts("t-0", log, history, Offset(0))
    facts.restore(0, with_voters=True)
    return directory, log, facts, history


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("more", [0, 20])
@pytest.mark.parametrize("end", range(17))
def test_a_set_that_was_cut_away_is_not_found_after_a_restart(tmp_path: Path, end: int, more: int, restarts: bool) -> None:
    """Also where another set came to stand at its offset, where the log grew past the points that told of it, and where the
    process that made the cut went on."""
    directory = FileLogDirectory(tmp_path, post=None, segment_bytes=SEGMENT_BYTES)
    log, facts, history = log_with_points(directory)
    log.truncate_to(Offset(end))
    history.truncate_to(Offset(end))
    expected = [(4 * number, voters) for number, voters in enumerate(ALL) if 4 * number < end]
    if restarts:
        directory.abandon()
        directory, log, facts, history = restarted(tmp_path)
    assert history.entries == expected
    other = FIRST.with_voter(key(9, b"z"), HERE)
    add_voters(log, facts, history, other)
    for _ in range(more):
        facts.appended(append(log, data_batch(log, 10)))
    directory.abandon()
    directory, log, facts, history = restarted(tmp_path)
    assert history.entries == [*expected, (end, other)]
    directory.close()


@pytest.mark.parametrize("end", [4, 8, 9, 12, 13])
def test_a_point_tells_the_set_that_stands_in_the_log_now(tmp_path: Path, end: int) -> None:
    """The process has written points with the set that was at the same offset before the cut."""
    directory = FileLogDirectory(tmp_path, post=None, segment_bytes=SEGMENT_BYTES)
    log, facts, history = log_with_points(directory)
    end = end // 4 * 4
    log.truncate_to(Offset(end))
    history.truncate_to(Offset(end))
    other = FIRST.with_voter(key(9, b"z"), HERE)
    add_voters(log, facts, history, other)
    facts.save(log.end_offset)
    directory.abandon()
    directory, log, facts, history = restarted(tmp_path)
    assert history.entries == [(4 * number, voters) for number, voters in enumerate(ALL) if 4 * number < end] + [(end, other)]
    directory.close()


@pytest.mark.parametrize("voters_from", range(17))
def test_of_sets_before_the_snapshot_only_what_it_says_itself_is_known(tmp_path: Path, voters_from: int) -> None:
    """Points and records below the end of the snapshot tell of them too."""
    directory = FileLogDirectory(tmp_path, post=None, segment_bytes=SEGMENT_BYTES)
    log, _, _ = log_with_points(directory)
    sets = [(4 * number, voters) for number, voters in enumerate(ALL)]
    history = VoterHistory(INITIAL)
    before = [each for each in sets if each[0] < voters_from][-1:]
    if before:
        history.record(Offset(voters_from - 1), before[0][1])
    LogFacts("t-0", log, history, Offset(voters_from)).restore(0, with_voters=True)
    told = [(voters_from - 1, voters) for _, voters in before]
    assert history.entries == told + [each for each in sets if each[0] >= voters_from]
    directory.close()


def test_the_point_at_the_start_of_a_trimmed_log_stays(tmp_path: Path) -> None:
    """It is all that is known of producers whose records are gone."""
    directory = FileLogDirectory(tmp_path, post=None, segment_bytes=SEGMENT_BYTES)
    log, _, _ = log_with_points(directory)
    start = log.advance_start(Offset(9))
    kept = list(log.start_points.offsets)
    assert start > 0 and kept[0] == start
    directory.abandon()
    directory, log, _, _ = restarted(tmp_path)
    assert list(log.start_points.offsets) == kept
    directory.close()
