"""Bugs planted where a review of the core and of what performs its actions found some: what ends late, twice or never."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

FETCHING = "raftlake.raft.fetching"
ANSWERS = "raftlake.raft.handlers.fetch_response"
DOWNLOADS = "raftlake.raft.handlers.fetch_snapshot"
PROGRESS = "raftlake.raft.progress"
ROLES = "raftlake.raft.transitions"
TURN = "raftlake.replica.turn.turn"
RESTART = "raftlake.replica.turn.restart"
FINDINGS = "raftlake.replica.disk.findings"
TRANSFER = "raftlake.replica.snapshots.transfer"
TAKEN = "raftlake.replica.snapshots.snapshots"
LOOKED_AT = "raftlake.replica.snapshots.check"
KEYS = "raftlake.replica.kv.service"
HANDOVER = "raftlake.replica.handover"
FILES_OF_SNAPSHOTS = "raftlake.storage.snapshots"
IN_CORE = ("unit/raft/test_raft_fetch_snapshot.py",)
OBSERVED = ("unit/raft/test_raft_fetch.py",)
ALONE = ("unit/raft/test_raft_impairment.py",)
AMID_WORK = ("unit/replica/test_replica_disk_damage_amid_work.py",)
IN_TURNS = ("unit/replica/test_replica_turn.py",)
FOUND = ("unit/replica/test_replica_disk_findings_scrub_syncer.py",)
SNAPSHOTS = ("unit/replica/test_replica_snapshots_alone.py",)
SLOW_SYNC = ("unit/replica/test_replica_snapshots.py",)
STOPPING = ("unit/replica/test_replica_handover.py",)
RESTARTED = ("unit/replica/test_replica_turn_actions_restart.py",)
FILES = ("unit/replica/test_replica_too_many_files.py",)

ARRIVING = (
    mutant(
        "nothing-is-fetched-while-a-snapshot-is-synced",
        "a sync longer than a fetch timeout ends in a campaign, and the snapshot is fetched again, and again",
        FETCHING,
        "    role = group.role\n    if isinstance(role, Follower):\n        is_others",
        "    role = group.role\n"
        "    if isinstance(role, Follower) and role.download is not None and role.download.is_complete:\n"
        "        return\n"
        "    if isinstance(role, Follower):\n        is_others",
        SLOW_SYNC,
    ),
    mutant(
        "a-whole-snapshot-is-asked-for-once-more",
        "the piece behind its end is refused, and what is here is thrown away",
        FETCHING,
        "        if download is not None and not download.is_complete:\n",
        "        if download is not None:\n",
        IN_CORE,
    ),
    mutant(
        "leader-moves-a-log-that-waits-for-its-snapshot",
        "the log is cut, or a second snapshot is fetched beside the one that is about to be durable",
        ANSWERS,
        "    if role.download is not None and role.download.is_complete:\n",
        "    if False:\n",
        IN_CORE,
    ),
    mutant(
        "signs-of-life-without-a-pause",
        "a node asks as fast as its leader answers, while its disk is busy",
        ANSWERS,
        "        fetching.show_life_later(group, now_ms)\n        return\n",
        "        fetching.send_fetch(group, now_ms)\n        return\n",
        IN_CORE,
    ),
    mutant(
        "first-fetch-behind-a-snapshot-waits-for-a-sign-of-life",
        "half a second is lost with each snapshot",
        DOWNLOADS,
        "    role.download = None\n    group.fetch_retry_at_ms = None\n",
        "    role.download = None\n",
        IN_CORE,
    ),
    mutant(
        "failed-sync-of-an-earlier-download-ends-the-one-under-way",
        "the next piece is one that nobody asked for, and stops the node",
        DOWNLOADS,
        " and was_awaited and download.is_complete:\n",
        " and was_awaited:\n",
        IN_CORE,
    ),
    mutant(
        "forgotten-observer-waits-for-ever",
        "it believes that its Fetch is parked",
        PROGRESS,
        "                _answer_parked(group, parked)\n",
        "                pass\n",
        OBSERVED,
    ),
    mutant(
        "voter-loses-its-fetch-with-a-strangers",
        "a number on another disk is an observer, and the voter of that number is not",
        PROGRESS,
        "None if oldest.key.id in leader.voters else leader",
        "None if oldest.key.id < 0 else leader",
        OBSERVED,
    ),
    mutant(
        "who-lost-all-asks-nobody",
        "by its settings it is the only voter, and it was removed long ago",
        ROLES,
        "    if group.is_alone or (",
        "    if not group.other_voters or (",
        ALONE,
    ),
    mutant(
        "who-lost-all-of-its-own-epoch-follows-itself",
        "nobody leads that epoch any more",
        ROLES,
        "not (group.other_voters and group.may_stand())",
        "not group.may_stand()",
        ALONE,
    ),
)

DAMAGED = (
    mutant(
        "damaged-log-is-appended-to",
        "what the turn dropped leaves a gap, and the next record stands behind it",
        TURN,
        " or self._findings.holds(partition.group):\n",
        ":\n",
        IN_TURNS,
    ),
    mutant(
        "damaged-group-performs-on",
        "its core takes for written what is not",
        TURN,
        "            if self._findings.holds(partition.group):\n",
        "            if False:\n",
        IN_TURNS,
    ),
    mutant(
        "damage-outlives-its-log",
        "the log that was opened anew is set aside for what is gone, and the node stops",
        FINDINGS,
        "        engine.closed.append(self._forget)\n",
        "",
        AMID_WORK,
    ),
    mutant(
        "closed-log-takes-the-damage-of-others-with-it",
        "the other log is never repaired",
        FINDINGS,
        "        self._found.pop(partition.group, None)\n",
        "        self._found.clear()\n",
        FOUND,
    ),
    mutant(
        "snapshot-of-a-damaged-log-is-waited-for",
        "the node takes no other one, and its metadata log grows",
        TAKEN,
        "        engine.closed.append(self._on_closed)\n",
        "",
        AMID_WORK,
    ),
    mutant(
        "closed-topic-ends-the-snapshot-of-the-keys",
        "each topic that is deleted puts it off",
        TAKEN,
        "        if partition.group == METADATA_GROUP and taking is not None:\n",
        "        if taking is not None:\n",
        SNAPSHOTS,
    ),
    mutant(
        "what-an-abandoned-snapshot-covered-is-forgotten",
        "the next one is put off until as much is written again",
        TAKEN,
        "            self._taking = None\n            self._kv.bytes_since_snapshot += taking.bytes_covered\n\n    # --- data",
        "            self._taking = None\n\n    # --- data",
        SNAPSHOTS,
    ),
    mutant(
        "key-space-goes-back-to-an-older-snapshot",
        "keys are gone that were shown, and what is over begins again",
        KEYS,
        "        if self.machine.applied_offset >= snapshot_id.offset:\n            return\n",
        "",
        AMID_WORK,
    ),
    mutant(
        "restoration-outlives-its-log",
        "its file is put aside with the log",
        KEYS,
        "                self._restoring.cancel()\n                self._restoring = None\n",
        "                pass\n",
        AMID_WORK,
    ),
)

UNANSWERED = (
    mutant(
        "closed-group-takes-the-answer-of-a-fetch-snapshot-with-it",
        "the asker, and all that it sent behind, waits for the end of its patience",
        TRANSFER,
        "        for number in left:\n",
        "        for number in left[:0]:\n",
        SNAPSHOTS,
    ),
    mutant(
        "closed-group-answers-the-first-asker-alone",
        "the others wait",
        TRANSFER,
        "        for number in left:\n",
        "        for number in left[:1]:\n",
        SNAPSHOTS,
    ),
    mutant(
        "closed-group-answers-for-all-groups",
        "the group of another part still has an answer to give",
        TRANSFER,
        " if message.group == partition.group]\n",
        "]\n",
        SNAPSHOTS,
    ),
    mutant(
        "snapshot-arrives-for-a-group-that-is-gone",
        "its file is never ended",
        TRANSFER,
        "        self.abandon(partition.group)\n        left",
        "        left",
        SNAPSHOTS,
    ),
    mutant(
        "leader-hands-over-for-want-of-a-descriptor",
        "a read that may be tried again counts as an append without room",
        TRANSFER,
        "        except TooManyFiles as error:\n",
        "        except ZeroDivisionError as error:\n",
        SNAPSHOTS,
    ),
    mutant(
        "look-at-a-snapshot-without-a-descriptor-stops-the-node",
        "a timer has nobody to report to",
        LOOKED_AT,
        "        except TooManyFiles as error:\n",
        "        except ZeroDivisionError as error:\n",
        SNAPSHOTS,
    ),
    mutant(
        "turn-without-a-descriptor-opens-the-keys-anew",
        "the log is read once more, and that stops the node",
        KEYS,
        "        except TooManyFiles as error:\n",
        "        except ZeroDivisionError as error:\n",
        FILES,
    ),
    mutant(
        "settling-group-holds-what-came-after-its-successor",
        "the name of the next leader is known, and nobody tells it",
        HANDOVER,
        "            settling = self._settling.pop(group, None)\n",
        "            settling = self._settling.get(group)\n",
        STOPPING,
    ),
    mutant(
        "who-was-replaced-while-it-settled-campaigns-on",
        "a node that stops leads again where its successor fails",
        HANDOVER,
        "            if settling is not None:\n                self._settled(settling)\n",
        "",
        STOPPING,
    ),
    mutant(
        "read-behind-a-failed-question-waits-for-another-read",
        "those who asked that question have given up, and nobody else wakes the group",
        "raftlake.replica.replication.reads",
        "            if self._gathering:\n                self._ask_later()",
        "            if alive:\n                self._ask_later()",
        ("unit/replica/test_replica_replication_reads.py",),
    ),
    mutant(
        "full-node-waits-for-a-fetch-that-it-does-not-send",
        "no round goes out, and all groups lose sight of their leader",
        "raftlake.replica.replication.fetcher",
        "                fetcher.stop_waiting(group)\n",
        "                pass\n",
        ("unit/replica/test_replica_disk_watch.py",),
    ),
    mutant(
        "only-voter-keeps-what-it-held",
        "it has nobody to name, and appends nothing either",
        HANDOVER,
        "            self._engine.mark_appending(partition)\n",
        "            pass\n",
        STOPPING,
    ),
)

WRITERS = ("unit/storage/test_storage_snapshot_writers.py",)
POINTED = ("unit/storage/test_storage_start_points.py",)
DISPOSED = ("unit/storage/test_storage_disposal.py",)
DELETED = ("unit/replica/test_replica_apis_topics_producers.py",)

THREADS = (
    mutant(
        "removal-that-fails-ends-the-thread-of-snapshots",
        "each later snapshot is waited for without end",
        FILES_OF_SNAPSHOTS,
        "        discard(self._part)\n\n    def _close",
        "        self._part.unlink(missing_ok=True)\n\n    def _close",
        WRITERS,
    ),
    mutant(
        "close-that-fails-ends-the-thread-of-snapshots",
        "each later snapshot is waited for without end",
        FILES_OF_SNAPSHOTS,
        "            with contextlib.suppress(OSError):\n                os.close(descriptor)\n",
        "            os.close(descriptor)\n",
        WRITERS,
    ),
    mutant(
        "snapshots-are-queued-for-a-thread-that-never-began",
        "nobody writes them",
        FILES_OF_SNAPSHOTS,
        "        return self._thread is not None\n",
        "        return True\n",
        WRITERS,
    ),
    mutant(
        "thread-of-snapshots-ends-in-silence",
        "the node should stop, since no snapshot ends any more",
        FILES_OF_SNAPSHOTS,
        "                self.report(_raise_thread_ended)\n",
        "                pass\n",
        WRITERS,
    ),
    mutant(
        "unfinished-snapshot-that-is-gone-stops-the-start-of-its-log",
        "the thread removes it at the same time",
        FILES_OF_SNAPSHOTS,
        "unlink(missing_ok=True)\n                    continue",
        "unlink()\n                    continue",
        WRITERS,
    ),
    mutant(
        "files-are-held-for-a-thread-that-never-began",
        "their blocks are never free",
        "raftlake.storage.disposal",
        "        return self._thread is not None\n",
        "        return True\n",
        DISPOSED,
    ),
    mutant(
        "close-that-fails-ends-the-thread-of-disposal",
        "the blocks of later files are never free",
        "raftlake.storage.disposal",
        "            with contextlib.suppress(OSError):\n                os.close(self._held[0])\n",
        "            os.close(self._held[0])\n",
        DISPOSED,
    ),
)

POINTS = (
    mutant(
        "point-that-was-named-and-not-synced-is-unknown",
        "it outlives a cut of the log, and tells producers of another history",
        "raftlake.storage.start_points",
        "            self._look_again(offset)\n            discard(temporary)\n",
        "            discard(temporary)\n",
        POINTED,
    ),
)

TOPICS = (
    mutant(
        "changed-topic-is-told-to-be-gone",
        "the client believes that it deleted the topic, and the data stays",
        "raftlake.replica.hosting.topics",
        "            elif self._still_stands(name, topic):\n",
        "            elif False:\n",
        DELETED,
    ),
    mutant(
        "replaced-topic-is-deleted-in-place-of-the-old-one",
        "somebody else created it, and appends to it",
        "raftlake.replica.hosting.topics",
        "        return standing is not None and standing.topic_id == topic.topic_id\n",
        "        return standing is not None\n",
        DELETED,
    ),
    mutant(
        "spoilt-key-is-told-to-be-gone",
        "it was spoilt once more, and stands",
        "raftlake.replica.hosting.topics",
        "            return self.is_spoilt(name)\n        standing",
        "            return False\n        standing",
        DELETED,
    ),
)

REVIEW_CORE = (*ARRIVING, *DAMAGED, *UNANSWERED, *THREADS, *POINTS, *TOPICS)
