"""Bugs planted in the guards against hostile input: committed keys, directories, proposals, epochs, records, producers."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

RESERVED = "raftlake.replica.reserved"
STRICT = "raftlake.kv.strict_json"
PROPOSALS = "raftlake.replica.kv.proposals"
MEMBERSHIP = "raftlake.replica.voters.membership"
PARTITION = "raftlake.storage.partition"
RECOVER = "raftlake.runtime.recovery.recover"
CHECKS = "raftlake.replica.aside.record_checks"
PRODUCE = "raftlake.replica.apis.produce"

APPLY = (
    Mutant(
        name="missing-field-of-a-reserved-key-raises",
        source="issue 10: /raftlake/nodes/evil with {} stopped two of three nodes, and again at every start",
        edits=(Edit(STRICT, "    except KeyError as error:\n", "    except IndexError as error:\n"),),
        by_tests=True,
        places=("unit/replica/test_replica_reserved.py", "property/test_replica_hostile_keys.py"),
    ),
    Mutant(
        name="depth-of-a-reserved-value-left-to-the-interpreter",
        source="issue 10: a limit of the interpreter differs from node to node, and so would what they make of a key",
        edits=(Edit(STRICT, '    if value.count(b"[") + value.count(b"{") > BRACKETS_MAX:\n', "    if False:\n"),),
        by_tests=True,
        places=("unit/replica/test_replica_reserved.py",),
    ),
    Mutant(
        name="true-is-a-number-of-partitions",
        source="classic: Python's bool is an int",
        edits=(Edit(STRICT, "    if type(found) is not int or not low", "    if not isinstance(found, int) or not low"),),
        by_tests=True,
        places=("unit/replica/test_replica_reserved.py",),
    ),
    Mutant(
        name="beginning-of-a-topic-name-checked",
        source="issue 10: /raftlake/topics/../../../pwned made a directory outside of the data directory",
        edits=(Edit(RESERVED, "_NAME.fullmatch(name)", "_NAME.match(name)"),),
        by_tests=True,
        places=("unit/replica/test_replica_reserved.py",),
    ),
    Mutant(
        name="own-log-hosted-as-a-topic",
        source="issue 10: a topic of the metadata log's name replaces it, and its deletion deletes it",
        edits=(Edit(RESERVED, "if name == METADATA_TOPIC else fault", 'if name == METADATA_TOPIC + "-" else fault'),),
        by_tests=True,
        places=("unit/replica/test_replica_kv_proposals.py",),
    ),
    Mutant(
        name="partitions-of-a-committed-topic-unbounded",
        source='issue 10: "partitions": 10**9 builds that list',
        edits=(Edit(RESERVED, 'integer(fields["partitions"], 1, partitions_max)', 'integer(fields["partitions"], 1, 10**18)'),),
        by_tests=True,
        places=("unit/replica/test_replica_reserved.py",),
    ),
    Mutant(
        name="spoilt-producer-ids-begin-anew",
        source="issue 10: an id that is given out twice mixes two producers' sequences",
        edits=(Edit(RESERVED, "        return PRODUCER_IDS_BLOCK * entry.version\n", "        return 0\n"),),
        by_tests=True,
        places=("unit/replica/test_replica_reserved.py",),
    ),
    Mutant(
        name="addresses-kept-that-were-spoilt",
        source="issue 10: a node that was restarted would not know them, so nodes would differ",
        edits=(
            Edit(
                MEMBERSHIP,
                "        before = self._known.pop(key, None)\n        if before is not None:\n",
                "        before = self._known.pop(key, None) if value is None else self._known.get(key)\n"
                "        if before is not None and value is None:\n",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_kv_proposals.py",),
    ),
)

PATHS = (
    Mutant(
        name="directory-deleted-through-a-link",
        source="issue 10: a path that is made or deleted lies in the data directory",
        edits=(
            Edit(
                PARTITION,
                "    for group in groups:\n        require_inside(root, group)\n    try:\n",
                "    for group in groups:\n        partition_path(root, group)\n    try:\n",
            ),
        ),
        by_tests=True,
        places=("unit/storage/test_storage_partition.py",),
    ),
    Mutant(
        name="name-with-a-slash-is-a-directory",
        source="issue 10: storage judges names by itself",
        edits=(
            Edit(PARTITION, '    if "/" in name or "\\0" in name:\n', '    if "\\0" in name:\n'),
            Edit(PARTITION, "    if real != os.path.join(os.path.realpath(root), path.name):\n", "    if False:\n"),
        ),
        by_tests=True,
        places=("unit/storage/test_storage_partition.py", "unit/storage/test_storage_directory.py"),
    ),
    Mutant(
        name="old-data-files-stay-open-to-others",
        source="issue 10: data files 0600, old ones mended at the start",
        edits=(
            Edit("raftlake.storage.directory", "            mend_modes(path)\n", ""),
            Edit("raftlake.storage.directory", "from raftlake.storage.modes import mend_modes\n", ""),
        ),
        by_tests=True,
        places=("unit/storage/test_storage_modes.py",),
    ),
)

GATE = (
    Mutant(
        name="forwarded-batch-taken-for-a-nodes-own",
        source="issue 10: a Produce to __cluster_metadata with a node's client id wrote any reserved key",
        edits=(
            Edit(
                "raftlake.replica.kv.service",
                "self.gate.refusal(txn, origin, rpc.source)",
                "self.gate.refusal(txn, Origin.SELF, rpc.source)",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_kv_proposals.py",),
    ),
    Mutant(
        name="first-key-of-a-transaction-checked",
        source="issue 10: the second of two operations is as reserved as the first",
        edits=(
            Edit(
                PROPOSALS,
                "    for change in txn.changes:  # noqa: SIM110\n",
                "    for change in txn.changes[:1]:\n",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_kv_proposals.py",),
    ),
    Mutant(
        name="node-speaks-for-another",
        source="issue 10: a peer forwards only what its kind of node writes",
        edits=(Edit(PROPOSALS, "return None if found.node_id == source else", "return None if True else"),),
        by_tests=True,
        places=("unit/replica/test_replica_kv_proposals.py",),
    ),
    Mutant(
        name="producer-ids-may-go-back",
        source="issue 10: an id that is given out twice mixes two producers' sequences",
        edits=(
            Edit(
                PROPOSALS,
                "return None if version < applied or wanted > known else",
                "return None if True else",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_kv_proposals.py",),
    ),
)

EPOCHS = (
    Mutant(
        name="recovery-leaves-no-epoch",
        source="issue 10: `raftlake recover` ended in a struct.error",
        edits=(Edit(RECOVER, "    if following <= EPOCH_USABLE_MAX:\n", "    if following <= EPOCH_MAX:\n"),),
        by_tests=True,
        places=("unit/runtime/test_runtime_recovery_recover_epochs.py",),
    ),
    Mutant(
        name="epoch-given-up-returns-with-a-damaged-file",
        source="the journal takes the later of two states, and epochs rise",
        edits=(Edit(RECOVER, "        self._elections.forget_past()\n", ""),),
        by_tests=True,
        places=("unit/runtime/test_runtime_recovery_recover_epochs.py",),
    ),
)

WORK = (
    Mutant(
        name="budget-for-each-batch",
        source="issue 10: 30 batches of 2 KB held 60 MiB each and froze a node for 4.3 s",
        edits=(Edit(CHECKS, "        self._left = max(0, self._left - cost)\n", ""),),
        by_tests=True,
        places=("unit/replica/test_replica_aside_record_checks.py",),
    ),
    Mutant(
        name="exhausted-budget-tried-again",
        source="issue 10: each further batch costs the whole budget once more",
        edits=(Edit(CHECKS, "            self._left = 0\n", ""),),
        by_tests=True,
        places=("unit/replica/test_replica_aside_record_checks.py",),
    ),
    Mutant(
        name="small-append-overtakes-a-large-one",
        source="issue 10: order per partition must stay where large requests are looked at aside",
        edits=(Edit(CHECKS, " or self.line.is_under_way(asker, partition.group)):", "):"),),
        by_tests=True,
        places=("unit/replica/test_replica_aside_record_checks.py",),
    ),
    Mutant(
        name="append-to-what-was-deleted-meanwhile",
        source="a request that was aside comes back to a partition that is gone: nobody would answer it",
        edits=(
            Edit(
                PRODUCE,
                "    is_elsewhere = partition.deleted or _is_elsewhere(node, partition)\n",
                "    is_elsewhere = _is_elsewhere(node, partition)\n",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_aside_record_checks.py",),
    ),
    Mutant(
        name="partition-twice-in-a-request",
        source="issue 10: one partition twice in one request is refused",
        edits=(Edit(PRODUCE, "part.index] > 1:\n", "part.index] > 2:\n"),),
        by_tests=True,
        places=("unit/replica/test_replica_aside_record_checks.py",),
    ),
)

HOSTILE_APPLY = (*APPLY, *PATHS, *GATE, *EPOCHS, *WORK)
