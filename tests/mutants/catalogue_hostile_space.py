"""Bugs planted in what keeps a node from running out of room: the key space's quota, the watch over the disk, a full disk."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

QUOTA = "raftlake.kv.quota"
KEYSPACE = "raftlake.kv.keyspace"
KV_ROOM = "raftlake.replica.kv_room"
KV = "raftlake.replica.kv_service"

KEY_SPACE = (
    Mutant(
        name="quota-blind-to-what-is-under-way",
        source="a burst of pipelined writes passes a quota that each of them keeps",
        edits=(Edit(QUOTA, "sizes.size + self.under_way + growth > limit", "sizes.size + growth > limit"),),
        by_tests=True,
        places=("unit/test_kv_quota.py",),
    ),
    Mutant(
        name="quota-refuses-what-does-not-grow",
        source="a full key space has to be emptied by deletions, and hot keys go on",
        edits=(Edit(QUOTA, "if growth > 0 and sizes.size", "if sizes.size"),),
        by_tests=True,
        places=("unit/test_kv_quota.py",),
    ),
    Mutant(
        name="one-deletion-makes-room-for-many",
        source="commands under way that each count on the deletion of the same key",
        edits=(Edit(QUOTA, "return size if touched is None else min(size, touched.floor)", "return size"),),
        by_tests=True,
        places=("unit/test_kv_quota.py",),
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
        places=("unit/test_kv_quota.py",),
    ),
    Mutant(
        name="key-counted-in-characters",
        source="a key of one character may have four bytes",
        edits=(Edit(KEYSPACE, "(len(key) if key.isascii() else len(key.encode()))", "len(key)"),),
        by_tests=True,
        places=("unit/test_kv_quota.py",),
    ),
    Mutant(
        name="clients-starve-the-quorums-keys",
        source="a node cannot register and no topic can be made in a key space that clients have filled",
        edits=(Edit(QUOTA, "(self._own_room if any(is_reserved(key) for key, _ in after) else 0)", "0"),),
        by_tests=True,
        places=("unit/test_kv_quota.py",),
    ),
    Mutant(
        name="forwarded-commands-pass-the-quota",
        source="what another node forwards grows the key space as well",
        edits=(Edit(KV, "        if reservations is None:\n", "        if False:\n"),),
        by_tests=True,
        places=("unit/test_replica_kv_room.py",),
    ),
    Mutant(
        name="unknown-write-no-longer-counted",
        source="a write that timed out is in the log still, and may be applied",
        edits=(Edit(KV_ROOM, "if is_unknown and partition is not None and partition.core.is_leader:", "if False:"),),
        by_tests=True,
        places=("unit/test_replica_kv_room.py",),
    ),
    Mutant(
        name="full-key-space-taken-for-unknown",
        source="507 of a node says that nothing was proposed",
        edits=(
            Edit(
                "raftlake.client.kv_answers",
                '        return "x-raftlake-offset" not in answer.headers\n',
                "        return True\n",
            ),
        ),
        by_tests=True,
        places=("unit/test_client_kv_answers.py",),
    ),
)

HOSTILE_SPACE = (*KEY_SPACE,)
