"""Bugs planted in what keeps a node from running out of room: the key space's quota, the watch over the disk, a full disk."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

QUOTA = "raftlake.kv.quota"
KEYSPACE = "raftlake.kv.keyspace"
KV_ROOM = "raftlake.replica.kv.room"
KV = "raftlake.replica.kv.service"

KEY_SPACE = (
    Mutant(
        name="quota-blind-to-what-is-under-way",
        source="a burst of pipelined writes passes a quota that each of them keeps",
        edits=(Edit(QUOTA, "sizes.size + self.under_way + growth > limit", "sizes.size + growth > limit"),),
        by_tests=True,
        places=("unit/kv/test_kv_quota.py",),
    ),
    Mutant(
        name="quota-refuses-what-does-not-grow",
        source="a full key space has to be emptied by deletions, and hot keys go on",
        edits=(Edit(QUOTA, "if growth > 0 and sizes.size", "if sizes.size"),),
        by_tests=True,
        places=("unit/kv/test_kv_quota.py",),
    ),
    Mutant(
        name="one-deletion-makes-room-for-many",
        source="commands under way that each count on the deletion of the same key",
        edits=(Edit(QUOTA, "return size if touched is None else min(size, touched.floor)", "return size"),),
        by_tests=True,
        places=("unit/kv/test_kv_quota.py",),
    ),
    Mutant(
        name="replaced-value-counted-twice",
        source="the size of the key space must be exact: it drifts with every replacement",
        edits=(
            Edit(
                KEYSPACE,
                "self.size += value_bytes(row) - value_bytes(replaced)",
                "self.size += value_bytes(row)",
            ),
        ),
        by_tests=True,
        places=("unit/kv/test_kv_quota.py",),
    ),
    Mutant(
        name="key-counted-in-characters",
        source="a key of one character may have four bytes",
        edits=(Edit(KEYSPACE, "(len(key) if key.isascii() else len(key.encode()))", "len(key)"),),
        by_tests=True,
        places=("unit/kv/test_kv_quota.py",),
    ),
    Mutant(
        name="clients-starve-the-quorums-keys",
        source="a node cannot register and no topic can be made in a key space that clients have filled",
        edits=(Edit(QUOTA, "(self._own_room if is_own else 0)", "0"),),
        by_tests=True,
        places=("unit/kv/test_kv_quota.py",),
    ),
    Mutant(
        name="forwarded-commands-pass-the-quota",
        source="what another node forwards grows the key space as well",
        edits=(
            Edit(KV, "        if isinstance(admission, NoRoom):\n            reply(", "        if False:\n            reply("),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_kv_room.py",),
    ),
    Mutant(
        name="unknown-write-no-longer-counted",
        source="a write that timed out is in the log still, and may be applied",
        edits=(Edit(KV_ROOM, "if is_unknown and partition is not None and partition.core.is_leader:", "if False:"),),
        by_tests=True,
        places=("unit/replica/test_replica_kv_room.py",),
    ),
    Mutant(
        name="full-key-space-taken-for-unknown",
        source="507 of a node says that nothing was proposed",
        edits=(
            Edit(
                "raftlake.client.kv_answers",
                "415, 421, 503, INSUFFICIENT_STORAGE})",
                "415, 421, 503})",
            ),
        ),
        by_tests=True,
        places=("unit/client/test_client_no_room.py",),
    ),
)

WATCH = "raftlake.replica.disk.watch"
IN_WATCH = ("unit/replica/test_replica_disk_watch.py",)
LOW_DISKS = (
    Mutant(
        name="low-disk-ends-at-the-limit",
        source="a disk at its limit would be refused and let through in turns, each second",
        edits=(Edit(WATCH, "(Room.above(self.limit_bytes) if was_low else self.limit_bytes)", "self.limit_bytes"),),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="appends-between-looks-not-counted",
        source="a producer writes more in a second than has to stay free",
        edits=(Edit(WATCH, "        self._appended += size\n", ""),),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="leader-alone-decides-what-is-low",
        source="a majority decides: a leader with room commits nothing while its followers fill up",
        edits=(Edit(WATCH, "(self.is_low if each == me else each in self._low_peers)", "self.is_low"),),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="low-peer-never-taken-back",
        source="it clears by itself: no command to disarm",
        edits=(Edit(WATCH, "                del self._low_peers[replica_id]\n", "                pass\n"),),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="deletions-refused-on-a-low-disk",
        source="a full disk has to be emptied by deletions",
        edits=(Edit(WATCH, "            if isinstance(operation, Put):\n", "            if True:\n"),),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="repeated-batch-refused-for-want-of-room",
        source="a batch that is in the log would be called not written",
        edits=(
            Edit("raftlake.replica.partition.partition", "            if repeated is not None:\n", "            if False:\n"),
        ),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="refused-batch-overtaken",
        source="what was refused for want of room comes again, behind what was under way with it",
        edits=(
            Edit(
                "raftlake.replica.partition.partition",
                "            self.producers.send_back(first.producer_id, first.producer_epoch, first.base_sequence)\n",
                "",
            ),
            Edit(
                "raftlake.replica.partition.producer_state",
                "        if not self._rows(producer_id) and (known is None or is_after(known, base_sequence)):\n",
                "        if False:\n",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_partition_producer_state_rules.py",),
    ),
    Mutant(
        name="low-disk-not-told-to-the-leader",
        source="the leader refuses for a majority, of which it must know",
        edits=(Edit("raftlake.wire.fetch", "            request.disk_is_low = True\n", "            pass\n"),),
        by_tests=True,
        places=("unit/wire/test_wire_hot_messages.py",),
    ),
)

STORAGE_LOG = "raftlake.storage.log"
FULL_DISKS = (
    Mutant(
        name="failed-append-leaves-batches-behind",
        source="a start finds the second batch of an append that failed behind a shorter one",
        edits=(
            Edit(
                "raftlake.storage.segment",
                "                os.ftruncate(self.file.descriptor(), self.size)\n                self._reserve",
                "                self._reserve",
            ),
        ),
        by_tests=True,
        places=("unit/storage/test_storage_full_disk.py",),
    ),
    Mutant(
        name="ballast-never-given-up",
        source="a node on a full disk must still save its vote",
        edits=(Edit("raftlake.storage.room", "            if not self.release():\n", "            if True:\n"),),
        by_tests=True,
        places=("unit/storage/test_storage_room.py", "unit/storage/test_storage_full_disk_files.py"),
    ),
    Mutant(
        name="ballast-made-of-the-last-room",
        source="the ballast itself must not bring a disk below what has to stay free",
        edits=(Edit("raftlake.storage.room", "room.free_bytes - size > Room.above(limit)", "room.free_bytes > size"),),
        by_tests=True,
        places=("unit/storage/test_storage_room.py",),
    ),
    Mutant(
        name="sealed-before-the-next-segment-is-there",
        source="a segment that was sealed takes no append, and there is none to follow it",
        edits=(
            Edit(
                STORAGE_LOG,
                "            self._active.prepare_seal()\n",
                "            self._active.prepare_seal()\n            self._active.seal()\n",
            ),
        ),
        by_tests=True,
        places=("unit/storage/test_storage_full_disk.py",),
    ),
    Mutant(
        name="unfinished-snapshot-left-on-a-full-disk",
        source="leftovers take the room that is missing",
        edits=(
            Edit(
                "raftlake.storage.snapshots",
                "                self._close()\n                discard(self._part)\n",
                "                self._close()\n",
            ),
            Edit(
                "raftlake.storage.snapshots",
                "        if self._error is not None:\n            discard(self._part)\n",
                "",
            ),
        ),
        by_tests=True,
        places=("unit/storage/test_storage_full_disk_files.py",),
    ),
    Mutant(
        name="recovery-point-kept-for-want-of-room",
        source="a start would take what was cut since for damage",
        edits=(
            Edit(
                "raftlake.storage.recovery_points",
                "            delete_file(self._path)\n",
                "            pass\n",
            ),
        ),
        by_tests=True,
        places=("unit/storage/test_storage_full_disk_files.py",),
    ),
    Mutant(
        name="failed-sync-taken-for-want-of-room",
        source="PostgreSQL's fsync surprise of 2018: also ENOSPC of a sync is final",
        edits=(Edit("raftlake.storage.files", 'error.errno in NO_ROOM and doing != "sync"', "error.errno in NO_ROOM"),),
        by_tests=True,
        places=("unit/storage/test_storage_room.py", "unit/storage/test_storage_full_disk_files.py"),
    ),
    Mutant(
        name="unsaved-vote-answered",
        source="without room for its state a group says nothing",
        edits=(Edit(WATCH, "if group not in states}", "}"),),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="full-node-fetches-on",
        source="what cannot be written is fetched again and again",
        edits=(Edit("raftlake.replica.replication.fetcher", "        if self._disk.is_full:\n", "        if False:\n"),),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="waiting-fetch-forgotten-by-a-group-that-begins-anew",
        source="a replica would wait for ever in a session whose other groups are answered",
        edits=(Edit("raftlake.replica.turn.restart", "        self._fetch_server.begun_anew(partition.group)\n", ""),),
        by_tests=True,
        places=("unit/replica/test_replica_turn_actions_restart.py",),
    ),
    Mutant(
        name="append-without-room-called-unknown",
        source="nothing of it is in the log, and its client may try again",
        edits=(
            Edit(
                "raftlake.replica.partition.partition",
                "            for pending in admitted:\n                _refuse(",
                "            for pending in ():\n                _refuse(",
            ),
        ),
        by_tests=True,
        places=IN_WATCH,
    ),
    Mutant(
        name="snapshot-without-room-stops-the-node",
        source="an optional snapshot's ENOSPC stopped all nodes within 260 ms",
        edits=(
            Edit(
                "raftlake.replica.snapshots.snapshots",
                "        if isinstance(error, DiskFull):\n            self._put_off(taking, error)\n",
                "        if False:\n            self._put_off(taking, error)\n",
            ),
        ),
        by_tests=True,
        places=IN_WATCH,
    ),
)

HOSTILE_SPACE = (*KEY_SPACE, *LOW_DISKS, *FULL_DISKS)
