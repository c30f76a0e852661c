"""Bugs planted in what keeps data when a reserved key is spoilt: the judge of puts, the snapshots, the topics that follow."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

RULES = "raftlake.replica.reserved_rules"
MACHINE = "raftlake.kv.machine"
RESTORATION = "raftlake.kv.restoration"
TOPICS = "raftlake.replica.hosting.topics"
KV = "raftlake.replica.kv.service"
UNIT = "unit/replica/test_replica_reserved_rules.py"
CLUSTER = "unit/replica/test_replica_hosting_spoilt_topics.py"
PROPERTY = "property/test_replica_spoilt_keys.py"

HOSTILE_SPOILT = (
    Mutant(
        name="spoilt-value-ends-a-topic",
        source="issue 10: garbage over a topic's key deleted its data on every node, although the log said that it is ignored",
        edits=(
            Edit(
                RULES,
                "            return None if before is None else found.reason\n",
                "            return self.drop(topic_key(name))\n",
            ),
        ),
        by_tests=True,
        places=(CLUSTER, PROPERTY, UNIT),
    ),
    Mutant(
        name="another-id-replaces-a-topic",
        source="a put that is no deletion deletes the data of the id that stood there",
        edits=(
            Edit(
                RULES,
                "(found.topic_id, found.voters) != (before.topic_id, before.voters)",
                "found.voters != before.voters",
            ),
        ),
        by_tests=True,
        places=(UNIT, CLUSTER, PROPERTY),
    ),
    Mutant(
        name="topic-loses-partitions",
        source="nodes that joined before and after would host different partitions",
        edits=(Edit(RULES, "found.partitions < before.partitions:", "found.partitions < 1:"),),
        by_tests=True,
        places=(UNIT, PROPERTY),
    ),
    Mutant(
        name="judged-by-the-first-value-alone",
        source="a topic that grew may not shrink to what it was at first",
        edits=(
            Edit(RULES, "        self.topics[topic.name] = topic\n", "        self.topics.setdefault(topic.name, topic)\n"),
        ),
        by_tests=True,
        places=(UNIT,),
    ),
    Mutant(
        name="one-id-under-two-names",
        source="issue 10: two names with one id share their groups; spoiling the older key deleted its data",
        edits=(Edit(RULES, "        if other != name:\n", "        if not other:\n"),),
        by_tests=True,
        places=(UNIT, CLUSTER, "unit/replica/test_replica_kv_proposals.py"),
    ),
    Mutant(
        name="id-of-a-deleted-topic-stays-taken",
        source="a name that is deleted and put again under another one",
        edits=(Edit(RULES, "            del self._names[topic.topic_id]\n", "            self._names.get(topic.topic_id)\n"),),
        by_tests=True,
        places=(UNIT,),
    ),
    Mutant(
        name="last-of-two-topics-with-one-id-counts",
        source="issue 10: two names with one id share their groups, and the deletion of one deletes the other's",
        edits=(Edit(RULES, "(version_of(topic_key(other)), other) < (entry.version, name)", "other > name"),),
        by_tests=True,
        places=(UNIT,),
    ),
    Mutant(
        name="version-stays-where-the-value-stays",
        source="nodes of earlier releases count another version, and the next compare ends otherwise there",
        edits=(
            Edit(
                MACHINE,
                "                    row = pack(version, value)\n",
                "                    row = pack(ignored and self._space.version_of(key) or version, value)\n",
            ),
        ),
        by_tests=True,
        places=(UNIT,),
    ),
    Mutant(
        name="ignored-operation-ends-its-transaction",
        source="all or nothing: the operations behind a spoilt one are done on nodes of earlier releases",
        edits=(
            Edit(
                MACHINE,
                "                    row = pack(version, value)\n",
                "                    if ignored:\n                        break\n"
                "                    row = pack(version, value)\n",
            ),
        ),
        by_tests=True,
        places=(UNIT,),
    ),
    Mutant(
        name="snapshot-forgets-what-is-in-force",
        source="after a snapshot the first spoilt value would end a topic",
        edits=(Edit(MACHINE, "restoration.space, restoration.rules", "restoration.space, self._new_rules()"),),
        by_tests=True,
        places=(UNIT, CLUSTER),
    ),
    Mutant(
        name="losing-name-of-an-old-snapshot-keeps-its-value",
        source="nodes that replay the log and nodes with an old snapshot would hold different values",
        edits=(Edit(RESTORATION, "                    if loser is not None:\n", "                    if loser == key:\n"),),
        by_tests=True,
        places=(UNIT,),
    ),
    Mutant(
        name="producer-ids-go-back-in-a-committed-block",
        source="issue 10: an id that is given out twice mixes two producers' sequences",
        edits=(Edit(RULES, "    return None if wanted >= known else", "    return None if wanted >= 0 else"),),
        by_tests=True,
        places=(UNIT,),
    ),
    Mutant(
        name="incarnation-lost-to-garbage",
        source="issue 10: is there any reserved key whose garbage loses something?",
        edits=(
            Edit(
                RULES, "            return found.reason if isinstance(found, Refused) else None\n", "            return None\n"
            ),
        ),
        by_tests=True,
        places=(UNIT,),
    ),
    Mutant(
        name="data-under-a-spoilt-key-deleted",
        source="a key that an earlier release let be spoilt: its data goes when an operator says so",
        edits=(Edit(TOPICS, "for group in over if group.topic not in self._spoilt)", "for group in over)"),),
        by_tests=True,
        places=(CLUSTER,),
    ),
    Mutant(
        name="data-of-a-running-node-deleted-with-a-spoilt-snapshot",
        source="the node has followed the topic, and the snapshot's key means nothing",
        edits=(Edit(TOPICS, "self._queue.delete([] if name in self._spoilt else doomed)", "self._queue.delete(doomed)"),),
        by_tests=True,
        places=(CLUSTER,),
    ),
    Mutant(
        name="deleted-spoilt-key-leaves-its-data",
        source="a topic that is created anew finds another incarnation in its directory, and is hosted nowhere",
        edits=(Edit(TOPICS, "self._queue.delete([] if is_spoilt else over)", "self._queue.delete([])"),),
        by_tests=True,
        places=(CLUSTER,),
    ),
    Mutant(
        name="create-over-a-spoilt-key-says-that-it-exists",
        source="issue 10: create said TOPIC_ALREADY_EXISTS, and delete UNKNOWN_TOPIC_OR_PARTITION",
        edits=(Edit(TOPICS, "        if not self.is_spoilt(name):\n", "        if True:\n"),),
        by_tests=True,
        places=(CLUSTER,),
    ),
    Mutant(
        name="spoilt-key-cannot-be-deleted",
        source="issue 10: create said TOPIC_ALREADY_EXISTS, and delete UNKNOWN_TOPIC_OR_PARTITION",
        edits=(Edit("raftlake.replica.apis.topics", "not any(topic_id) and node.topics.is_spoilt(name)", "False"),),
        by_tests=True,
        places=(CLUSTER,),
    ),
    Mutant(
        name="topic-that-took-no-effect-was-created",
        source="the proposer of a put without effect has to hear of it",
        edits=(Edit(TOPICS, "                elif outcome.result.ignored:\n", "                elif False:\n"),),
        by_tests=True,
        places=(CLUSTER,),
    ),
    Mutant(
        name="put-without-effect-not-told",
        source="issue 10: every node counts it, logs it once, ignores it alike",
        edits=(Edit(KV, "        for key, reason in result.ignored:\n", "        for key, reason in ():\n"),),
        by_tests=True,
        places=(CLUSTER,),
    ),
    Mutant(
        name="ignored-puts-forgotten-with-the-result",
        source="a proposal of this node learns its result from what was applied last",
        edits=(
            Edit(
                "raftlake.replica.kv.recent_results",
                "if result.ignored or result.refused or result.ranges else",
                "if result.refused or result.ranges else",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_kv_recent_results.py", CLUSTER),
    ),
)
