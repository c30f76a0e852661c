"""Planted bugs in what a caller of the client is told of a change whose second try is refused, and whose first one was carried
out. And in changes that go by a name, which means another topic by then."""

from __future__ import annotations

from tests.mutants.catalogue_review_clients import mutant
from tests.mutants.plant import Edit

CLIENT = "raftlake.client."
CHECKPOINTS = "raftlake.checkpoints."
DELETING = "raftlake.replica.apis.topics"

PRODUCER = CLIENT + "producer"

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
LAGGING = ("unit/replica/test_replica_apis_topics_producers.py",)
FACTS = ("unit/checkpoints/test_checkpoints_layout_facts.py",)
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
            "if changes and was_sent and may_be_done:",
            "if changes:",
        ),
    ),
    mutant(
        "topic-held-on-to-when-its-leader-is-down",
        "nothing was sent there, and what the client knew was old",
        PARTITIONS,
        Edit(CLIENT + "routing", "if changes and was_sent and may_be_done:", "if changes and may_be_done:"),
    ),
    mutant(
        "configs-of-the-next-topic-altered",
        "IncrementalAlterConfigs goes by name: the retry sets the retention of what was created since",
        CHANGE,
        Edit(
            CLIENT + "config_admin",
            "Change(self._cluster, what, deadline, topic=topic)",
            "Change(self._cluster, what, deadline)",
        ),
    ),
    mutant(
        "next-topic-grown",
        "CreatePartitions goes by name: keys of a topic that was created since move to other partitions",
        CHANGE,
        Edit(CLIENT + "partition_admin", "deadline, topic=topic)", "deadline)"),
    ),
    mutant(
        "topic-looked-for-behind-a-try-at-another-node-only",
        "one call asks several nodes, one after the other",
        CHANGE,
        Edit(CLIENT + "cluster", "if was_sent and before_repeating is not None:", "if False:"),
    ),
    mutant(
        "topic-not-looked-for-behind-a-try-that-timed-out",
        "its node proposed the change, and answered",
        CHANGE,
        Edit(CLIENT + "change", "            if self.may_be_done:\n", "            if False:\n"),
    ),
    mutant(
        "first-try-refused-for-what-the-client-knew",
        "the topic was created again long before",
        CHANGE,
        Edit(CLIENT + "change", "            if self.may_be_done:\n", "            if True:\n"),
    ),
    mutant(
        "id-of-the-topic-learned-behind-the-first-try",
        "it is that of the next topic then",
        CHANGE,
        Edit(
            CLIENT + "change",
            "if self._topic is not None and not self.may_be_done:",
            "if self._topic is not None and self.may_be_done:",
        ),
    ),
    mutant(
        "node-that-lags-does-not-know-the-topic-that-is-deleted",
        "a client that asked before takes the answer for its own work, and the topic stands",
        LAGGING,
        Edit(DELETING, "node.kv.read(True, look_again)", "node.kv.read(False, look_again)"),
    ),
    mutant(
        "topic-unknown-to-a-node-that-cannot-ask-is-gone",
        "the leader may know it",
        LAGGING,
        Edit(DELETING, "            if result.error is not ErrorCode.NONE:\n", "            if False:\n"),
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
        Edit(CLIENT + "change", "        self.may_be_done = True\n", ""),
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
        Edit(CLIENT + "transactions", "                    await backoff.pause(deadline)\n", "                    pass\n"),
    ),
    mutant(
        "sent-end-of-a-transaction-cancelled-with-its-client",
        "it may be committed, and its caller is told that the client is closed",
        TRANSACTIONS,
        Edit(CLIENT + "transactions", "if deadline.is_over() or self._is_closed:", "if deadline.is_over():"),
    ),
    mutant(
        "end-between-two-tries-cancelled-with-its-client",
        "the same while it waits for its second try",
        TRANSACTIONS,
        Edit(CLIENT + "transactions", "if not (is_unknown and self._is_closed):", "if True:"),
    ),
    mutant(
        "cancelled-end-of-a-transaction-is-an-error",
        "who cancels its own task has it cancelled",
        TRANSACTIONS,
        Edit(CLIENT + "transactions", "if not (is_unknown and self._is_closed):", "if not is_unknown:"),
    ),
    mutant(
        "append-that-cannot-be-built-begins-a-transaction",
        "its abort is refused, since nodes know of none",
        TRANSACTIONS,
        Edit(
            PRODUCER,
            "            (partition, [place for place, _ in batch], self._built",
            "            (self._sender(topic, partition) and partition, [place for place, _ in batch], self._built",
        ),
    ),
    mutant(
        "batch-that-is-none-begins-a-transaction",
        "the same for batches that the caller has built",
        TRANSACTIONS,
        Edit(
            PRODUCER, "        # All are read before", "        self._sender(topic, partition)\n        # All are read before"
        ),
    ),
    mutant(
        "created-topic-that-others-do-not-know-yet-is-refused",
        "the caller believes that there is none",
        CHANGE,
        Edit(
            CLIENT + "admin",
            "if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):",
            "if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and deadline.is_over():\n                    raise\n"
            "                if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):",
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
        "what is above the high watermark was not deleted by the first try either",
        PARTITIONS,
        Edit(
            CLIENT + "partition_admin",
            "is_refused = decides_it or result is ErrorCode.OFFSET_OUT_OF_RANGE",
            "is_refused = decides_it",
        ),
    ),
    mutant(
        "policy-of-today-decides-a-deletion-of-before",
        "the topic may have been compacted since",
        PARTITIONS,
        Edit(
            CLIENT + "partition_admin",
            "result is ErrorCode.OFFSET_OUT_OF_RANGE",
            "result in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.POLICY_VIOLATION)",
        ),
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
        Edit(
            CHECKPOINTS + "steps",
            "writer.commit(change, [found for found in places.values() if found is not None])",
            "writer.commit(change)",
        ),
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

#: Anybody may write a key that looks like `metadata` of a checkpoint.
ODD_KEYS = (
    mutant(
        "uri-that-is-none-ends-the-list",
        "one odd key hides all checkpoints",
        (*FACTS, *SPACE),
        Edit(
            CHECKPOINTS + "blobs",
            "    except ValueError:\n        return None\n",
            "    except KeyError:\n        return None\n",
        ),
    ),
    mutant(
        "topic-that-cannot-be-read-ends-the-list",
        "the same for a blob in a topic that the quorum refuses",
        FACTS,
        Edit(
            CHECKPOINTS + "facts",
            "(InvalidInput, MachineError, RequestRejected, WrongState)",
            "(InvalidInput, MachineError, WrongState)",
        ),
    ),
    mutant(
        "list-reads-a-pipe",
        "it waits for whoever writes into it",
        FACTS,
        Edit(CHECKPOINTS + "blobs", "if not stat.S_ISREG(found.st_mode):", "if False:"),
    ),
    mutant(
        "list-reads-large-blobs",
        "a key of somebody else lets it fetch gigabytes",
        FACTS,
        Edit(
            CHECKPOINTS + "facts",
            "node.is_blob and node.length > INLINE_BYTES",
            "node.is_blob and node.length > INLINE_BYTES + 1",
        ),
    ),
    mutant(
        "small-blob-left-out-of-the-list",
        "`metadata` of a checkpoint that keeps nothing inline is one",
        FACTS,
        Edit(
            CHECKPOINTS + "facts", "node.is_blob and node.length > INLINE_BYTES", "node.is_blob and node.length >= INLINE_BYTES"
        ),
    ),
    mutant(
        "file-read-beyond-what-its-key-says",
        "the key says three bytes, and the file has gigabytes",
        FACTS,
        Edit(CHECKPOINTS + "blobs", "file.read(max(0, min(node.length, found.st_size)) + 1)", "file.read()"),
    ),
    mutant(
        "memory-is-asked-for-as-a-key-says",
        "anybody may write that a file has 2^62 bytes: commands beside it ended",
        SPACE,
        Edit(CHECKPOINTS + "blobs", "min(node.length, found.st_size)", "node.length"),
    ),
    mutant(
        "head-of-any-depth-ends-the-list",
        "a megabyte of brackets is no JSON of ours",
        FACTS,
        Edit(CHECKPOINTS + "node", "except (ValueError, RecursionError) as error:", "except ValueError as error:"),
    ),
    mutant(
        "half-a-character-of-a-mark-is-printed",
        "no output takes it",
        FACTS,
        Edit(
            CHECKPOINTS + "mark",
            '*(text_of(facts, name) for name in ("doing", "told", "query", "before"))',
            '*(str(facts.get(name, "")) for name in ("doing", "told", "query", "before"))',
        ),
    ),
)

REVIEW_CLIENT_OUTCOMES = (*OTHER_TOPIC, *UNDECIDED, *SMALL_FILES, *ODD_NUMBERS, *ODD_KEYS)
