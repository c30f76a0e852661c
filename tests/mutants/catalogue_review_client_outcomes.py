"""Planted bugs in what a caller of the client is told of a change whose second try is refused, and whose first one was carried
out. And in changes that go by a name, which means another topic by then."""

from __future__ import annotations

from tests.mutants.catalogue_review_clients import mutant
from tests.mutants.plant import Edit

CLIENT = "raftlake.client."
CHECKPOINTS = "raftlake.checkpoints."

ADMIN = ("unit/client/test_client_admin.py",)
CHANGE = ("unit/client/test_client_change.py",)
PARTITIONS = ("unit/client/test_client_partition_admin.py",)
ROUTING = ("unit/client/test_client_routing_deadline.py",)
TRANSACTIONS = ("unit/client/test_client_transactions.py",)
VOTERS = ("unit/client/test_client_voters.py",)
SCENARIOS = ("kip/test_kafka_scenarios_voters.py",)
SMALL = ("unit/checkpoints/test_checkpoints_small_blobs.py",)
SPACE = ("unit/checkpoints/test_checkpoints_blobs_space.py",)
GOLDEN = ("unit/checkpoints/test_checkpoints_golden.py",)
SINK = ("connector/test_connector_ledger.py",)

OTHER_TOPIC = (
    mutant(
        "topic-deleted-by-its-name",
        "the retry after a lost answer deletes what was created since, with all that was acknowledged there",
        ADMIN,
        Edit(CLIENT + "admin", "        return topic_id if any(topic_id) else None\n", "        return None\n"),
    ),
    mutant(
        "deleted-topic-looked-for-once-more",
        "its id is gone since the first try deleted it, and the name is asked for again",
        ADMIN,
        Edit(
            CLIENT + "admin",
            "code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)",
            "code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION",
        ),
    ),
    mutant(
        "id-of-a-node-that-lags-believed-for-good",
        "a topic that was just created again cannot be deleted",
        ADMIN,
        Edit(CLIENT + "admin", "            if code is ErrorCode.UNKNOWN_TOPIC_ID:\n", "            if False:\n"),
    ),
    mutant(
        "records-of-the-next-topic-deleted",
        "DeleteRecords goes by name: the retry meets the topic that was created since",
        (*ROUTING, *PARTITIONS),
        Edit(CLIENT + "routing", "deadline, topic_id=topic_id, is_retry=True)", "deadline, is_retry=True)"),
    ),
    mutant(
        "topic-held-on-to-before-anything-was-done-there",
        "what the client knew was old, and the call is refused",
        (*ROUTING, *PARTITIONS),
        Edit(
            CLIENT + "routing",
            "if changes and any(result in _MAY_BE_DONE or not isinstance(result, ErrorCode) for result in answer.values()):",
            "if changes:",
        ),
    ),
)

UNDECIDED = (
    mutant(
        "change-that-timed-out-at-its-node-is-refused-later",
        "the node proposed it, and the next one has no leader",
        CHANGE,
        Edit(CLIENT + "change", "self.may_be_done or code is ErrorCode.REQUEST_TIMED_OUT", "self.may_be_done"),
    ),
    mutant(
        "change-that-was-lost-is-refused-later",
        "the second of two is refused, and the first one was carried out",
        CHANGE,
        Edit(CLIENT + "change", "self.may_be_done = self.may_be_done or sent_before", "pass"),
    ),
    mutant(
        "nodes-that-are-gone-decide-a-change",
        "it was proposed before they went",
        CHANGE,
        Edit(CLIENT + "change", "            raise self.told(error) from None\n", "            raise\n"),
    ),
    mutant(
        "refused-repetition-of-an-end-is-its-outcome",
        "a transaction that is committed is reported as refused",
        TRANSACTIONS,
        Edit(CLIENT + "transactions", "                is_unknown = True\n", ""),
    ),
    mutant(
        "end-of-a-transaction-repeated-without-a-pause",
        "nodes that answer nothing are asked as fast as can be",
        TRANSACTIONS,
        Edit(
            CLIENT + "transactions",
            'read what is committed, then decide") from error\n            await backoff.pause(deadline)\n',
            'read what is committed, then decide") from error\n',
        ),
    ),
    mutant(
        "change-of-voters-without-a-reason-is-not-begun",
        "a leader that gives no reason has it in its log",
        VOTERS,
        Edit(CLIENT + "voters", "code is ErrorCode.REQUEST_TIMED_OUT and not message\n", "False\n"),
    ),
    mutant(
        "change-of-voters-that-was-never-sent-is-done",
        "the wrong directory id is refused, and the command says that the voter is gone",
        VOTERS,
        Edit(
            CLIENT + "voters", "the leader's connection was lost\", error.sent\n", "the leader's connection was lost\", True\n"
        ),
    ),
    mutant(
        "replaced-leader-has-begun-no-change",
        "who asks the next one takes its own work for somebody else's",
        SCENARIOS,
        Edit(
            "raftlake.raft.transitions",
            '                error=ErrorCode.REQUEST_TIMED_OUT,\n                message="",\n',
            '                error=ErrorCode.NOT_LEADER_OR_FOLLOWER,\n                message="",\n',
        ),
    ),
    mutant(
        "change-in-the-log-put-off-for-a-reason",
        "a reason says that nothing was begun",
        SCENARIOS,
        Edit("raftlake.raft.handlers.voters", 'ErrorCode.REQUEST_TIMED_OUT, "")', 'ErrorCode.REQUEST_TIMED_OUT, "not yet")'),
    ),
    mutant(
        "refused-look-decides-a-change-of-a-checkpoint",
        "the first try may still happen",
        SPACE,
        Edit(CHECKPOINTS + "space", "                if not is_open:\n", "                if True:\n"),
    ),
    mutant(
        "refusal-that-lasts-leaves-a-partition-undecided",
        "records of a compacted topic were not deleted by the first try either",
        PARTITIONS,
        Edit(CLIENT + "partition_admin", "is_refused = decides_it or result not in RETRIABLE", "is_refused = decides_it"),
    ),
    mutant(
        "refused-partition-hides-one-that-is-undecided",
        "the caller is told that nothing was deleted",
        PARTITIONS,
        Edit(
            CLIENT + "partition_admin", "    if undecided:\n", "    if undecided and not isinstance(error, RequestRejected):\n"
        ),
    ),
    mutant(
        "refused-partition-hides-those-that-are-done",
        "records are gone, and the error does not say so",
        PARTITIONS,
        Edit(CLIENT + "partition_admin", "                    begins[each] = result\n", "                    pass\n"),
    ),
)

SMALL_FILES = (
    mutant(
        "metadata-of-operators-in-a-blob-taken-for-empty",
        "a rename stops behind its marks, at each repetition",
        SMALL,
        Edit(CHECKPOINTS + "changes", "{name: tree.content(name) for name", "{name: tree.files[name].node.content for name"),
    ),
    mutant(
        "rewritten-file-leaves-its-blob",
        "nothing points to it, and nobody removes it",
        SMALL,
        Edit(CHECKPOINTS + "writer", "        self.commit(change, [found])\n", "        self.commit(change)\n"),
    ),
    mutant(
        "mark-leaves-the-blob-of-metadata",
        "the same for the file that a command marks first",
        SMALL,
        Edit(CHECKPOINTS + "steps", "writer.commit(change, [] if found is None else [found])", "writer.commit(change)"),
    ),
    mutant(
        "checkpoint-whose-metadata-is-a-blob-is-none",
        "a copy is put into it",
        SMALL,
        Edit(
            CHECKPOINTS + "steps",
            'b"" if found is None else tools.blobs().content(found.location, found.node)',
            'b"" if found is None else found.node.content',
        ),
    ),
)

ODD_NUMBERS = (
    mutant(
        "owner-since-the-year-10000",
        "one odd key ends the list of all checkpoints",
        (*GOLDEN, *SINK),
        Edit(CLIENT + "sink_keys", "0 <= found <= TIME_MS_MAX else 0", "0 <= found <= TIME_MS_MAX + 1 else 0"),
    ),
    mutant(
        "rows-of-a-topic-are-a-number",
        "whatever stands in the key of a batch is read",
        SINK,
        Edit(CLIENT + "sink_keys", "{name: number_of(topics, name) for name in topics}", "dict(topics)"),
    ),
)

REVIEW_CLIENT_OUTCOMES = (*OTHER_TOPIC, *UNDECIDED, *SMALL_FILES, *ODD_NUMBERS)
