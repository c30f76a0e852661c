"""Planted bugs: answers that Kafka's clients and tools act upon, and what the node's log says of them."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

CLUSTER = "raftlake.replica.apis.cluster"
RESERVED = "raftlake.replica.reserved"
REMOTE_LOG = "raftlake.replica.tiering.remote_log"

NAMES_CONFIGS = ("unit/replica/test_replica_apis_cluster_names_configs.py",)
API_VERSIONS = ("unit/runtime/test_runtime_log.py", "unit/runtime/test_runtime_listener_apis.py")
EPOCH_ENDS = ("unit/replica/test_replica_apis_unserved_epoch.py", "unit/replica/test_replica_tiering_remote_log.py")


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


KAFKA_ANSWERS = (
    mutant(
        "old-epoch-ends-with-the-name-of-the-first-one",
        "Kafka's LeaderEpochFileCache.endOffsetFor: the epoch that was asked for",
        REMOTE_LOG,
        "return OffsetAndEpoch(first[1], epoch)",
        "return OffsetAndEpoch(first[1], first[0])",
        EPOCH_ENDS,
    ),
    mutant(
        "first-epoch-taken-for-an-earlier-one",
        "off by one: the first known epoch has an end of its own",
        REMOTE_LOG,
        "if first is None or epoch >= first[0]:",
        "if first is None or epoch > first[0]:",
        EPOCH_ENDS,
    ),
    mutant(
        "old-epoch-ends-where-the-local-log-begins",
        "KIP-405: the leader epoch sequence goes on before the local start",
        REMOTE_LOG,
        "first = next(iter(self.epochs(partition)), None)",
        "first = next(iter(partition.log.epochs), None)",
        EPOCH_ENDS,
    ),
    mutant(
        "bad-name-is-one-of-a-topic-that-may-come",
        "a client that is told LEADER_NOT_AVAILABLE asks for ever",
        CLUSTER,
        "    elif node.topics.may_miss_some:\n",
        "    if node.topics.may_miss_some:\n",
        NAMES_CONFIGS,
    ),
    mutant(
        "names-of-250-characters",
        "off by one: Kafka's longest name has 249",
        RESERVED,
        "len(name) <= NAME_LENGTH_MAX",
        "len(name) <= NAME_LENGTH_MAX + 1",
        NAMES_CONFIGS,
    ),
    mutant(
        "topic-asked-for-by-id-has-a-bad-name",
        "Metadata by topic id names no topic",
        CLUSTER,
        "    if not by_id and fault_of_spelling",
        "    if fault_of_spelling",
        NAMES_CONFIGS,
    ),
    mutant(
        "minimum-in-sync-of-half-the-voters",
        "off by one: half of the voters is no majority",
        CLUSTER,
        "len(node.quorum.latest) // 2 + 1",
        "(len(node.quorum.latest) + 1) // 2",
        NAMES_CONFIGS,
    ),
    mutant(
        "default-broker-is-the-node-that-answers",
        "kafka-configs --entity-default: the settings of any one node are no defaults",
        CLUSTER,
        "    if not name:\n        return [], ErrorCode.NONE, None\n",
        "    name = name or str(node.engine.config.node_id)\n",
        NAMES_CONFIGS,
    ),
    mutant(
        "finalized-version-told-without-an-epoch",
        "Kafka: finalized features are valid only with an epoch",
        "raftlake.runtime.listener.api_versions",
        'level, fields["finalized_features_epoch"] = finalized',
        "level, _ = finalized",
        API_VERSIONS,
    ),
    mutant(
        "kraft-version-of-no-listener",
        "what one function knows, its caller has to hand on",
        "raftlake.runtime.listener.listener",
        "self.use, self._node.finalized_kraft_version()))",
        "self.use))",
        API_VERSIONS,
    ),
)
