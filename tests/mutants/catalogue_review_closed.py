"""Bugs planted where groups are closed for want of room: who opens them again, and what is made of their absence."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

CLOSED = "raftlake.replica.hosting.closed"
HOSTING = "raftlake.replica.hosting.hosting"
QUORUM = "raftlake.replica.quorum"
READS = "raftlake.replica.replication.reads"
RESTART = "raftlake.replica.turn.restart"
BY_CLOSED = ("unit/replica/test_replica_hosting_closed.py",)
BY_QUORUM = ("unit/replica/test_replica_quorum.py",)
BY_READS = ("unit/replica/test_replica_replication_reads.py",)
BY_FAULTS = ("unit/storage/test_storage_log_faults.py",)
FILES = "raftlake.storage.files"
LOG = "raftlake.storage.log"
RECOVERY = "raftlake.storage.recovery"
RESTARTED = ("unit/replica/test_replica_turn_actions_restart.py",)

REOPENED = (
    mutant(
        "group-without-room-stays-closed",
        "its log is never served again",
        CLOSED,
        "            self._engine.timers.schedule(self._engine.now_ms + NO_ROOM_PAUSE_MS, lambda: self._try(group, attempt))\n",
        "",
        BY_CLOSED,
    ),
    mutant(
        "want-of-room-while-a-group-is-opened-stops-the-node",
        "the next start finds no room either",
        CLOSED,
        "        except DiskFull as full:\n",
        "        except ZeroDivisionError as full:\n",
        BY_CLOSED,
    ),
    mutant(
        "opening-that-was-given-up-goes-on",
        "the group was closed once more: two attempts open one log",
        CLOSED,
        "        if self._attempts.get(group) is not attempt:\n",
        "        if group not in self._attempts:\n",
        BY_CLOSED,
    ),
    mutant(
        "group-that-is-open-counts-as-closed",
        "it is not opened any more once its topic was deleted and created again",
        CLOSED,
        "        del self._attempts[group]\n",
        "        pass\n",
        BY_CLOSED,
    ),
    mutant(
        "change-of-a-topic-opens-a-group-that-waits-for-room",
        "without the mark of its damage: it votes as if it had never held what was lost",
        "raftlake.replica.hosting.queue",
        " and not self._hosting.has(group):\n",
        " and group not in self._engine.partitions:\n",
        BY_CLOSED,
    ),
    mutant(
        "group-of-a-topic-that-is-over-is-opened",
        "its log is deleted under it, which stops the node",
        HOSTING,
        "            self.closed.forget(group)\n",
        "",
        BY_CLOSED,
    ),
    mutant(
        "log-without-room-at-a-start-stops-the-node",
        "at each start, and nobody can delete anything there",
        HOSTING,
        "            self.closed.open(group, partial(self.open_found, group))\n",
        "            self.open_found(group)\n",
        BY_CLOSED,
    ),
    mutant(
        "emptied-log-begins-with-the-voters-of-the-settings",
        "a topic's key says who votes, and this node may be the only one that its settings name",
        HOSTING,
        "        initial = None if topic is None else topic.voters_of(group.partition)\n        return self.open(",
        "        initial = None\n        return self.open(",
        BY_CLOSED,
    ),
    mutant(
        "emptied-log-waits-for-no-key",
        "seed 1040026142: it begins anew with the static voters, and leads",
        HOSTING,
        "initial=initial, is_found=topic is None)\n",
        "initial=initial, is_found=False)\n",
        BY_CLOSED,
    ),
    mutant(
        "damage-is-set-aside-with-each-try",
        "it is gone by then, which stops the node",
        RESTART,
        "        closed.damage, closed.is_prepared = None, True\n",
        "        closed.is_prepared = True\n",
        RESTARTED,
    ),
    mutant(
        "closed-log-is-settled-with-each-try",
        "it may not be open any more",
        RESTART,
        "        elif not closed.is_prepared:\n",
        "        else:\n",
        RESTARTED,
    ),
)

ABSENT = (
    mutant(
        "voters-forgotten-while-the-log-is-closed",
        "the node goes back to its settings: to addresses that voters have left",
        HOSTING,
        "        self._quorum.let_go(partition)\n",
        "",
        BY_QUORUM,
    ),
    mutant(
        "voters-of-a-data-partition-taken-for-those-of-the-quorum",
        "its log may be behind",
        QUORUM,
        "        if partition.group == self._engine.config.quorum_group:\n            self._before",
        "        if True:\n            self._before",
        BY_QUORUM,
    ),
    mutant(
        "topic-created-without-voters-while-the-log-is-closed",
        "it begins with the static voters",
        QUORUM,
        "        partition = self.partition or self._before\n        return None if",
        "        partition = self.partition\n        return None if",
        BY_QUORUM,
    ),
    mutant(
        "read-answered-from-a-log-that-is-closed",
        "an acknowledged write is missing",
        READS,
        "            self._gathering.append(waiting)\n        elif",
        "            self._finish(waiting, result)\n        elif",
        BY_READS,
    ),
    mutant(
        "read-of-a-closed-log-never-answered",
        "its caller waits until its time is over",
        READS,
        "            self._gathering.append(waiting)\n        elif",
        "            pass\n        elif",
        BY_READS,
    ),
    mutant(
        "read-that-waits-ends-with-the-log-that-was-closed",
        "the next one tells nobody of its high watermark: the read ends with its time",
        READS,
        "        if partition.deleted:\n",
        "        if False:\n",
        BY_READS,
    ),
    mutant(
        "node-without-a-file-to-read-takes-itself-for-the-only-voter",
        "it stops, and advises to restore a copy",
        "raftlake.replica.disk.alone",
        "        except DiskFull:\n",
        "        except ZeroDivisionError:\n",
        ("unit/replica/test_replica_disk_alone.py",),
    ),
    mutant(
        "settled-log-has-no-name-for-its-newest-segment",
        "a power loss takes the file with records that count as durable",
        LOG,
        "            sync_names(self.path)\n        except DiskFull:\n",
        "        except DiskFull:\n",
        BY_FAULTS,
    ),
    mutant(
        "settled-log-trusts-a-flush-under-way-with-its-names",
        "its records count as durable now, and the power may be lost before that flush has ended",
        LOG,
        "            sync_names(self.path)\n        except DiskFull:\n",
        "            if self._names_changed:\n                sync_names(self.path)\n        except DiskFull:\n",
        BY_FAULTS,
    ),
    mutant(
        "name-of-a-settled-segment-is-synced-again",
        "the flag stays: the next flush waits for the disk once more",
        LOG,
        "        self._names_changed = False\n        self.synced_end = self.end_offset\n",
        "        self.synced_end = self.end_offset\n",
        BY_FAULTS,
    ),
    mutant(
        "name-that-could-not-be-synced-is-tried-again",
        "a failed sync is final: what it was to write may be lost",
        FILES,
        '            sync_descriptor(descriptor)\n        except OSError as error:\n            raise storage_error("sync"',
        '            sync_descriptor(descriptor)\n        except OSError as error:\n            raise storage_error("open"',
        (*BY_FAULTS, "unit/storage/test_storage_reset.py"),
    ),
    mutant(
        "names-before-an-error-are-not-synced",
        "those that are there are opened, and nobody syncs them any more",
        FILES,
        "        yield\n    finally:\n        try:\n            sync_descriptor(descriptor)\n",
        "        yield\n        sync_descriptor(descriptor)\n    finally:\n        try:\n            pass\n",
        ("unit/storage/test_storage_created_names.py",),
    ),
    mutant(
        "directories-are-renamed-before-the-one-around-them-is-open",
        "for want of a descriptor their names were never synced",
        "raftlake.storage.partition",
        "    with durable_names(root):\n        try:\n",
        "    if True:\n        try:\n",
        ("unit/storage/test_storage_created_names.py",),
    ),
    mutant(
        "directory-counts-as-synced-after-a-failed-opening",
        "the first try wrote there: a power loss took what the second one built on",
        RECOVERY,
        "        self._synced.discard(path)\n",
        "",
        ("unit/storage/test_storage_recovery.py",),
    ),
    mutant(
        "each-read-of-a-closed-log-has-a-timer",
        "each asks for all of them, again and again: the node answers nothing else",
        READS,
        "    def _ask_later(self) -> None:\n        if self._retry is None:\n",
        "    def _ask_later(self) -> None:\n        if True:\n",
        BY_READS,
    ),
    mutant(
        "read-of-a-closed-log-asks-for-all-of-them",
        "a crowd asks as often as it is large, in one turn",
        READS,
        "            self._gathering.append(waiting)\n            self._ask_later()\n",
        "            self._gathering.append(waiting)\n            self._ask()\n",
        BY_READS,
    ),
    mutant(
        "each-new-read-asks-in-the-pause",
        "a crowd asks as often as it is large",
        READS,
        "        self._gathering.append(waiting)\n        if self._retry is None:\n            self._ask()\n",
        "        self._gathering.append(waiting)\n        self._ask()\n",
        BY_READS,
    ),
    mutant(
        "group-is-asked-for-once-more-and-never-again",
        "its reads end with their time",
        READS,
        "        self._retry = None\n        self._ask()\n",
        "        self._ask()\n",
        BY_READS,
    ),
)

REVIEW_CLOSED = (*REOPENED, *ABSENT)
