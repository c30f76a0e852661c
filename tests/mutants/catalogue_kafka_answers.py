"""Planted bugs: answers that Kafka's clients and tools act upon, and what the node's log says of them."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

CLUSTER = "raftlake.replica.apis.cluster"
RESERVED = "raftlake.replica.reserved"
REFUSED = "raftlake.replica.refused_for_good"
NEWS = "raftlake.replica.hosting.topic_news"
REMOTE_LOG = "raftlake.replica.tiering.remote_log"

NAMES_CONFIGS = ("unit/replica/test_replica_apis_cluster_names_configs.py",)
REASONS = ("unit/replica/test_replica_apis_reasons.py",)
GROWTH = ("unit/replica/test_replica_apis_create_partitions.py",)
AUTO_CREATION = ("unit/replica/test_replica_hosting_auto_creation.py",)
REFUSALS = ("unit/replica/test_replica_refused_for_good.py", "unit/replica/test_replica_apis_groups.py")
TOPIC_NEWS = ("unit/replica/test_replica_hosting_topic_news.py",)
CHECKED = ("unit/replica/test_replica_aside_record_checks.py", "unit/replica/test_replica_apis_produce_partition.py")
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
        "    fault = None if by_id else fault_of_spelling",
        "    fault = fault_of_spelling",
        NAMES_CONFIGS,
    ),
    mutant(
        "minimum-in-sync-of-half-the-voters",
        "off by one: half of the voters is no majority",
        "raftlake.replica.apis.configs",
        "len(node.quorum.latest) // 2 + 1",
        "(len(node.quorum.latest) + 1) // 2",
        NAMES_CONFIGS,
    ),
    mutant(
        "default-broker-is-the-node-that-answers",
        "kafka-configs --entity-default: the settings of any one node are no defaults",
        "raftlake.replica.apis.configs",
        "    if not name:\n        return []\n",
        "    name = name or str(node.engine.config.node_id)\n",
        NAMES_CONFIGS,
    ),
    mutant(
        "finalized-version-told-without-an-epoch",
        "Kafka: finalized features are valid only with an epoch",
        "raftlake.runtime.listener.api_versions",
        'kraft_version, fields["finalized_features_epoch"] = finalized',
        "kraft_version, _ = finalized",
        API_VERSIONS,
    ),
    mutant(
        "kraft-version-of-no-listener",
        "what one function knows, its caller has to hand on",
        "raftlake.runtime.listener.listener",
        "self.use, finalized, transaction_version))",
        "self.use))",
        API_VERSIONS,
    ),
    mutant(
        "refusal-told-each-time",
        "a consumer that commits comes again every five seconds",
        REFUSED,
        "        self._told.add(told)\n",
        "        self._told.add((kind, subject, str(len(self._told))))\n",
        REFUSALS,
    ),
    mutant(
        "refusals-told-once-for-ever",
        "an operator whose logs are rotated never hears of it again",
        REFUSED,
        "            self._told.clear()\n",
        "            pass\n",
        REFUSALS,
    ),
    mutant(
        "more-than-is-told-is-said-each-time",
        "a client that asks under ever new names",
        REFUSED,
        "len(self._told) > TOLD_MAX:\n            return\n        self._told.add(told)\n",
        "len(self._told) > 2 * TOLD_MAX:\n            return\n        self._told.add(told)\n",
        REFUSALS,
    ),
    mutant(
        "commit-refused-without-a-word",
        "the documentation says that the log tells why",
        "raftlake.replica.apis.groups",
        "    _note(node, COMMIT, request, client)\n",
        "",
        REFUSALS,
    ),
    mutant(
        "refused-append-told-by-its-leader-alone",
        "the second of two: requests of many partitions are answered elsewhere than those of one",
        "raftlake.replica.apis.produce",
        "        _decide(self._node, self._results[topic].name, self._client, result, partition)\n",
        "        result.log_start_offset = 0\n",
        REFUSALS,
    ),
    mutant(
        "fenced-append-told-with-the-epochs-exchanged",
        "a user looks for the wrong producer",
        "raftlake.replica.transactions.words",
        "has epoch {epoch}, the newest is {newest}",
        "has epoch {newest}, the newest is {epoch}",
        REASONS,
    ),
    mutant(
        "fenced-append-without-a-word",
        "the reason stays in the partition, as before",
        "raftlake.replica.partition.partition",
        "        pending.done(error, -1, why)\n",
        "        pending.done(error, -1)\n",
        REASONS,
    ),
    mutant(
        "refused-partitions-of-a-transaction-without-a-word",
        "the second of two: Produce 12 brings its partitions, and its reason comes from the coordinator",
        "raftlake.replica.transactions.verification",
        "            return pending.why_not_added\n",
        '            return ""\n',
        REASONS,
    ),
    mutant(
        "a-limit-of-partitions-that-nobody-reaches",
        "off by one: the quorum's own log takes one",
        "raftlake.replica.kv.room",
        "the limit of {limit - 1} for",
        "the limit of {limit} for",
        GROWTH,
    ),
    mutant(
        "a-creation-that-is-only-tried-has-no-limit",
        "kafka-topics tells that a topic can be created, and then it cannot",
        "raftlake.replica.apis.topics",
        "        node.topics.require_room(partitions)\n",
        "        pass\n",
        REASONS,
    ),
    mutant(
        "settings-of-a-node-told-as-configs-of-a-topic",
        "the line names a topic that nobody has",
        "raftlake.replica.apis.alter_configs",
        "_KINDS.get(resource.resource_type, ALTER_OTHER)",
        "ALTER",
        REASONS,
    ),
    mutant(
        "too-many-markers-told-one-by-one",
        "one request takes all lines of the hour",
        "raftlake.replica.apis.write_txn_markers",
        "                self._put(place, ErrorCode.INVALID_REQUEST)\n",
        "                self._on_written(place, group, ErrorCode.INVALID_REQUEST)\n",
        REASONS,
    ),
    mutant(
        "a-topic-that-came-about-without-its-client",
        "the line of the creation says nobody",
        "raftlake.replica.hosting.auto_creation",
        "partial(self._on_done, name, client, refused), client)",
        "partial(self._on_done, name, client, refused))",
        AUTO_CREATION,
    ),
    mutant(
        "unreadable-batches-asked-for-again",
        "clients send a batch again after CORRUPT_MESSAGE, until its time is over",
        "raftlake.replica.aside.record_checks",
        "        except UnreadableBatch as unreadable:\n            raise RequestRejected(ErrorCode.INVALID_RECORD,",
        "        except UnreadableBatch as unreadable:\n            raise RequestRejected(ErrorCode.CORRUPT_MESSAGE,",
        CHECKED,
    ),
    mutant(
        "old-topics-are-news-at-each-start",
        "restart: a node reads all keys again",
        NEWS,
        "version > metadata.core.epoch_start_offset",
        "version < metadata.core.epoch_start_offset",
        TOPIC_NEWS,
    ),
    mutant(
        "topic-told-by-every-node",
        "three lines for one deletion",
        NEWS,
        "if metadata is None or not metadata.core.is_leader:",
        "if metadata is None:",
        TOPIC_NEWS,
    ),
    mutant(
        "topic-told-twice-at-the-leader",
        "the node that was asked, and the leader, may be one",
        NEWS,
        "self._asked.pop((topic.topic_id, is_created), None), is_created=is_created)",
        "self._asked.get((topic.topic_id, is_created)), is_created=is_created)",
        TOPIC_NEWS,
    ),
    mutant(
        "refused-creation-told-as-done",
        "who was told TOPIC_ALREADY_EXISTS created nothing",
        NEWS,
        "if client is not None and is_done:",
        "if client is not None:",
        TOPIC_NEWS,
    ),
)
