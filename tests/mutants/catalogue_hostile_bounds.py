"""Planted bugs in bounds that have to hold for all requests together, and in what a node tells or notes of strangers."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

ROOM = "raftlake.replica.kv.room"
WATCH = "raftlake.replica.disk.watch"
PARTITIONS = ("unit/replica/test_replica_kv_room_partitions.py",)
TOLD = ("unit/replica/test_replica_disk_watch_told.py",)
QUEUE = "raftlake.replica.hosting.queue"
HOSTING = ("unit/replica/test_replica_hosting_queue.py", "unit/replica/test_replica_hosting_alone.py")

TOPICS = (
    mutant(
        "creations-of-one-turn-counted-apart",
        "one request of 60 topics with 9,000 partitions each created all of them, where 10,000 are the limit",
        ROOM,
        "partition_count + self.partitions_under_way + more <= limit",
        "partition_count + more <= limit",
        PARTITIONS,
    ),
    mutant(
        "partitions-held-after-the-outcome",
        "the second of two creations that failed would be refused for ever",
        ROOM,
        "        self.partitions_under_way -= admission.partitions\n",
        "",
        PARTITIONS,
    ),
    mutant(
        "partitions-of-an-unknown-creation-let-go",
        "a creation that timed out is in the log still, and may be applied",
        ROOM,
        "        if is_unknown and partition is not None and partition.core.is_leader:\n",
        "        if is_unknown and admission.partitions == 0 and partition is not None and partition.core.is_leader:\n",
        PARTITIONS,
    ),
    mutant(
        "new-leader-creates-before-it-can-count",
        "the topics of two leaders took the same room",
        ROOM,
        "        if not core.has_caught_up(Offset(self._state.machine.applied_offset)):\n",
        "        if False:\n",
        PARTITIONS,
    ),
    mutant(
        "partitions-of-deleted-topics-counted",
        "topics that come and go would use up the limit",
        "raftlake.replica.reserved_rules",
        "            self.partitions -= topic.partitions\n",
        "",
        PARTITIONS,
    ),
    mutant(
        "snapshot-deleted-while-it-is-fetched",
        "where commands come fast, a replica that begins with a large snapshot never got there",
        "raftlake.replica.snapshots.snapshots",
        "self._held.of(partition.group, ids[:-count]) if spares_held else []",
        "[]",
        ("unit/replica/test_replica_snapshots.py",),
    ),
    mutant(
        "log-deleted-before-a-snapshot-that-is-fetched",
        "a replica that has fetched a snapshot goes on with the log behind it",
        "raftlake.replica.snapshots.snapshots",
        "        return [*held, *ids[-count:]]\n",
        "        return ids[-count:]\n",
        ("unit/replica/test_replica_snapshots.py",),
    ),
    mutant(
        "snapshot-held-for-good",
        "a replica that asks for nothing any more keeps the log from being trimmed",
        "raftlake.replica.snapshots.held",
        "now_ms - reading.read_ms < IDLE_MS_MAX and ",
        "",
        ("unit/replica/test_replica_snapshots_held.py",),
    ),
    mutant(
        "no-pause-behind-a-slice-that-left-nothing",
        "a thousand topics of one partition: each was opened at once, for 6 to 18 seconds of the loop",
        QUEUE,
        "        self._is_waiting = self._has_room = True\n",
        "        self._is_waiting, self._has_room = bool(self._to_delete), True\n",
        HOSTING,
    ),
    mutant(
        "slow-disk-takes-all-of-the-time",
        "a pause of 5 ms behind a slice of 100 leaves nothing for votes",
        QUEUE,
        "max(PAUSE_MS, ended_ms - began_ms, late_ms)",
        "max(PAUSE_MS, late_ms)",
        HOSTING,
    ),
    mutant(
        "groups-opened-though-the-node-is-behind",
        "each of them elects a leader: the quorum was without service for minutes",
        QUEUE,
        "max(PAUSE_MS, ended_ms - began_ms, late_ms)",
        "max(PAUSE_MS, ended_ms - began_ms)",
        HOSTING,
    ),
    mutant(
        "groups-of-later-topics-opened-at-once",
        "only those of one topic were paced",
        QUEUE,
        "        if not self._is_waiting:\n            self._work()\n",
        "        self._work()\n",
        HOSTING,
    ),
    mutant(
        "group-opened-twice-in-one-turn",
        "its second opening replaced the group that had begun to vote",
        QUEUE,
        "list(dict.fromkeys(islice(self._wanted(), OPENED_AT_ONCE)))",
        "list(islice(self._wanted(), OPENED_AT_ONCE))",
        ("unit/replica/test_replica_hosting_queue.py",),
    ),
)

STRANGERS = (
    mutant(
        "strangers-low-disks-noted",
        "5,000 forged rounds left 5,000 entries",
        WATCH,
        "for each in (*self._low_peers, replica_id) if each in voters}",
        "for each in (*self._low_peers, replica_id)}",
        TOLD,
    ),
    mutant(
        "low-disks-of-former-voters-kept",
        "voters come and go, and what is noted of them would grow",
        WATCH,
        "for each in (*self._low_peers, replica_id) if each in voters}",
        "for each in (*self._low_peers, replica_id) if each in voters or each != replica_id}",
        TOLD,
    ),
)

TEXTS = (
    mutant(
        "full-disk-tells-clients-its-path",
        "a data directory with a blank in its name, or of one part, stood in the answer to a Produce",
        "raftlake.replica.partition.partition",
        "nothing was appended: {full.for_clients}",
        "nothing was appended: {full}",
        TOLD,
    ),
    mutant(
        "directory-of-a-local-quorum-for-all-to-list",
        "the names in it tell what runs there, and its lock and its logs lie in it",
        "raftlake.local_directories",
        "        data_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)\n",
        "        data_dir.mkdir(parents=True, exist_ok=True)\n",
        ("unit/local/test_local_directories.py",),
    ),
)

HOSTILE_BOUNDS = (*TOPICS, *STRANGERS, *TEXTS)
