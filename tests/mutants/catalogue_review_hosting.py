"""Bugs planted where a review found some: ids that no node reads back, the last epoch, and what deleted topics leave."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

ENTRY = "raftlake.replica.transaction_entry"
REQUESTS = "raftlake.replica.transactions.requests"
DEADLINES = "raftlake.replica.transactions.deadlines"
QUEUE = "raftlake.replica.hosting.queue"
READ_BACK = ("unit/replica/test_replica_transaction_entry.py",)
SWEPT = ("unit/replica/test_replica_transactions_deadlines.py",)
JUDGED = ("unit/replica/test_replica_transactions_requests.py",)
ANSWERED = ("unit/replica/test_replica_apis_transactions.py",)
WITHOUT_ROOM = ("unit/replica/test_replica_hosting_no_room.py",)

IDS = (
    mutant(
        "ids-that-no-node-reads-back-are-taken",
        "each left a key that no client could use or delete, until the key space was full",
        ENTRY,
        "    if brackets > ID_BRACKETS_MAX:\n",
        "    if False:\n",
        ANSWERED,
    ),
    mutant(
        "brackets-of-the-value-itself-are-not-counted",
        "an id of 299 brackets is one too many for what reads it",
        ENTRY,
        "ID_BRACKETS_MAX = BRACKETS_MAX - 2",
        "ID_BRACKETS_MAX = BRACKETS_MAX - 1",
        READ_BACK,
    ),
    mutant(
        "keys-of-ids-that-no-node-reads-back-stay",
        "an earlier release wrote them, and neither clients nor tools delete them",
        DEADLINES,
        "        return isinstance(decode(key, value), Refused)\n",
        "        return False\n",
        SWEPT,
    ),
)

LAST_EPOCH = (
    mutant(
        "transaction-begins-in-the-epoch-that-no-producer-gets",
        "each second its abort asked for an epoch that there is not, and nothing ended it",
        REQUESTS,
        "        if epoch > EPOCH_EXHAUSTED:\n",
        "        if epoch > EPOCH_MAX:\n",
        ANSWERED,
    ),
    mutant(
        "last-epoch-of-a-producer-begins-nothing",
        "InitProducerId gives this epoch",
        REQUESTS,
        "        if epoch > EPOCH_EXHAUSTED:\n",
        "        if epoch >= EPOCH_EXHAUSTED:\n",
        JUDGED,
    ),
    mutant(
        "time-out-in-the-last-epoch-raises-it",
        "what an earlier release began there stayed open for good",
        REQUESTS,
        "        if standing.epoch == EPOCH_MAX:\n            return Write(",
        "        if False:\n            return Write(",
        ANSWERED,
    ),
)

HOSTED = (
    mutant(
        "directories-are-unknown-until-their-logs-are-open",
        "a topic that was deleted before there was room left them, and the next one of its name stopped the node",
        QUEUE,
        "            raise\n        self._names.prepared(groups)\n",
        "            raise\n",
        WITHOUT_ROOM,
    ),
    mutant(
        "directories-are-unknown-where-room-ends-between-two",
        "the same for those that were made before room ended",
        QUEUE,
        "            # Some may have been made.\n            self._names.prepared(groups)\n",
        "",
        WITHOUT_ROOM,
    ),
    mutant(
        "directory-of-an-older-topic-is-taken-for-ones-own",
        "it is deleted first, and opened by another id it stops the node",
        "raftlake.replica.names",
        "            self._directories.setdefault((group.topic, group.partition), group.topic_id)\n",
        "            self._directories[group.topic, group.partition] = group.topic_id\n",
        ("unit/replica/test_replica_names.py",),
    ),
    mutant(
        "deleted-topic-stays-impaired",
        "health checks told of its damage until the process ended",
        "raftlake.replica.hosting.hosting",
        "            self._damage.forget(group)\n",
        "",
        ("unit/replica/test_replica_disk_damage.py",),
    ),
)

REVIEW_HOSTING = (*IDS, *LAST_EPOCH, *HOSTED)
