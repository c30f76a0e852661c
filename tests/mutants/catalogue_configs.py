"""Bugs planted in the configs of topics: what is accepted, how it changes, and whether replicas obey it."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

OBEYED = ("unit/replica/test_replica_configs_obeyed.py",)
RULES = ("unit/replica/test_replica_configs_changes.py", "unit/replica/test_replica_configs_definitions.py")
IN_FORCE = ("unit/replica/test_replica_configs_in_force.py",)
DESCRIBED = ("unit/replica/test_replica_configs_described.py",)
ALTER = ("unit/replica/test_replica_apis_alter_configs.py",)
DESCRIBE = ("unit/replica/test_replica_apis_configs.py",)
AGES = ("unit/replica/test_replica_turn_segment_ages.py",)
AUTO = ("unit/replica/test_replica_hosting_auto_creation.py",)
FORWARDED = ("unit/replica/test_replica_apis_create_partitions.py",)
BATCHES = ("unit/wire/test_wire_batches.py",)
LOGS = ("contract/test_storage_log_contract.py",)
CLIENT = ("unit/client/test_client_config_admin.py",)

PRODUCE = "raftlake.replica.apis.produce"
HOSTING = "raftlake.replica.hosting.hosting"
CHANGES = "raftlake.replica.configs.changes"
IN_FORCE_MODULE = "raftlake.replica.configs.in_force"

CONFIGS = (
    mutant(
        "retention-of-the-node-before-the-topic-is-known",
        "a node that restarted deleted by its own settings what the topic keeps for ever",
        "raftlake.replica.turn.housekeeping",
        "        for partition in list(engine.partitions.values()):\n            if partition.group == METADATA_GROUP or",
        "        from raftlake.replica.configs.in_force import in_force\n"
        "        for partition in list(engine.partitions.values()):\n"
        "            partition.in_force = partition.in_force or in_force({}, engine.config)\n"
        "            if partition.group == METADATA_GROUP or",
        OBEYED,
    ),
    mutant(
        "leader-appends-before-it-knows-the-topic",
        "what is above the topic's limit, or has no time of the leader, stands in the log for ever",
        PRODUCE,
        "        done(NO_ROOM, -1, NOT_KNOWN_YET)\n",
        "        partition.appending.append(PendingAppend(records, checked, asker.deadline_ms, done, False))\n"
        "        node.engine.mark_appending(partition)\n",
        OBEYED,
    ),
    mutant(
        "change-obeyed-after-the-next-restart",
        "alterations have to count at once, on all nodes",
        "raftlake.replica.hosting.topics",
        "        self._hosting.obey(topic)\n",
        "",
        OBEYED,
    ),
    mutant(
        "group-that-is-opened-obeys-nothing",
        "new partitions, and groups that are started anew, are opened after their topic's key was applied",
        HOSTING,
        "            partition.obey(in_force(topic.configs, engine.config))\n        engine.partitions",
        "            pass\n        engine.partitions",
        OBEYED,
    ),
    mutant(
        "segment-bytes-never-reach-the-log",
        "the change counts for the open segment too",
        "raftlake.replica.partition.partition",
        "        self.log.limit_segments(in_force.segment_bytes)\n",
        "",
        OBEYED,
    ),
    mutant(
        "file-log-keeps-its-first-limit",
        "segments of real nodes stay as large as log.segment.bytes",
        "raftlake.storage.log",
        "        self._segment_bytes = segment_bytes\n\n    def roll",
        "        pass\n\n    def roll",
        LOGS,
    ),
    mutant(
        "batch-of-exactly-the-limit-refused",
        "max.message.bytes itself is accepted",
        PRODUCE,
        "    if largest <= asked.message_bytes_max or",
        "    if largest < asked.message_bytes_max or",
        OBEYED,
    ),
    mutant(
        "repeated-batch-told-that-it-is-too-large",
        "a Java producer splits it and appends it a second time",
        PRODUCE,
        " or _is_repeated(partition, headers[0]):",
        ":",
        OBEYED,
    ),
    mutant(
        "largest-batch-not-looked-for",
        "only the first batch of a request was measured",
        PRODUCE,
        "    largest = headers[0].size if len(headers) == 1 else max(header.size for header in headers)\n",
        "    largest = headers[0].size\n",
        OBEYED,
    ),
    mutant(
        "stamped-batch-keeps-its-old-checksum",
        "the CRC covers attributes and times: no reader takes the batch",
        "raftlake.wire.batch_header",
        "    _CRC.pack_into(buffer, position + _CRC_AT,",
        "    str(",
        BATCHES,
    ),
    mutant(
        "stamped-time-of-the-producer-in-the-index",
        "searches by time and retention go by the span, and not by the header",
        "raftlake.replica.partition.partition",
        "                    newest_ms = now_ms\n",
        "",
        OBEYED,
    ),
    mutant(
        "repeated-batch-told-no-time",
        "a duplicate has the time that stands in the log",
        PRODUCE,
        "    if error is ErrorCode.NONE and time_ms == NO_TIME:\n",
        "    if False:\n",
        OBEYED,
    ),
    mutant(
        "time-of-the-producer-told-as-the-leaders",
        "what was appended before the config changed has the time of its producer",
        PRODUCE,
        "    return header.timestamp_ms_max if header.is_log_append_time else NO_TIME\n",
        "    return header.timestamp_ms_max\n",
        OBEYED,
    ),
    mutant(
        "local-disks-keep-longer-than-all",
        "topic and node may say what no longer fits together",
        IN_FORCE_MODULE,
        "(whole >= 0 and not 0 <= local <= whole)",
        "False",
        IN_FORCE,
    ),
    mutant(
        "local-retention-of-a-node-without-a-tier",
        "the local disks have the only copy",
        "raftlake.replica.partition.retention",
        "    if is_tiered:\n",
        "    if True:\n",
        ("unit/replica/test_replica_turn_actions_restart.py",),
    ),
    mutant(
        "total-retention-of-the-node-alone",
        "retention.ms of a topic with a table ended nothing in the table",
        "raftlake.replica.tiering.remover",
        "        return TotalRule(-1, -1) if asked is None else TotalRule(asked.retention_bytes, asked.retention_ms)\n",
        "        return TotalRule(self._engine.config.retention_bytes, self._engine.config.retention_ms)\n",
        ("unit/replica/test_replica_tiering_remover.py",),
    ),
    mutant(
        "change-drops-what-it-does-not-name",
        "IncrementalAlterConfigs is not AlterConfigs",
        CHANGES,
        "    after = dict(before)\n",
        "    after: dict[str, str] = {}\n",
        RULES,
    ),
    mutant(
        "append-forgets-the-default",
        "KIP-339: what is not set stands as its default",
        CHANGES,
        "before.get(change.name, definition.default(around))",
        'before.get(change.name, "")',
        RULES,
    ),
    mutant(
        "local-retention-above-the-whole-accepted",
        "whichever of the two is changed last",
        CHANGES,
        "if part == -1 or 0 <= whole < part:",
        "if part == -1:",
        RULES,
    ),
    mutant(
        "min-insync-replicas-above-the-majority-accepted",
        "issue: more is refused with the reason",
        "raftlake.replica.configs.definitions",
        "    if number is None or not 1 <= number <= around.majority:\n",
        "    if number is None or number < 1:\n",
        RULES,
    ),
    mutant(
        "junk-in-a-key-stops-the-node",
        "another release, or a broken one, may have written any text there",
        "raftlake.replica.configs.definitions",
        "        except ValueError:\n            # Another release",
        "        except ZeroDivisionError:\n            # Another release",
        IN_FORCE,
    ),
    mutant(
        "change-written-without-a-condition",
        "of two changes at the same time the first is lost",
        "raftlake.replica.hosting.topics",
        "        txn = Txn(compares=(Compare(key, self._key_version(name)),), ops=(Put(key, topic.encode()),))\n\n"
        "        def on_outcome(outcome: ProposeOutcome) -> None:\n            if outcome.status is not",
        "        txn = Txn(compares=(), ops=(Put(key, topic.encode()),))\n\n"
        "        def on_outcome(outcome: ProposeOutcome) -> None:\n            if outcome.status is not",
        ALTER,
    ),
    mutant(
        "looking-changes-the-topic",
        "validate_only",
        "raftlake.replica.apis.alter_configs",
        "        if self._request.validate_only:\n",
        "        if False:\n",
        ALTER,
    ),
    mutant(
        "forwarded-change-of-configs-refused",
        "a change at a node that does not lead came to nothing",
        "raftlake.replica.kv.proposals",
        'return None if is_same_size else "a topic grows or',
        'return "a topic grows or',
        ALTER,
    ),
    mutant(
        "source-of-the-node-for-a-default",
        "kafka-configs shows a static broker config that stands in no file",
        "raftlake.replica.configs.described",
        " and default != built_in:",
        ":",
        DESCRIBED,
    ),
    mutant(
        "documentation-told-unasked",
        "an answer for many topics is many times larger",
        "raftlake.replica.apis.configs",
        'if getattr(request, "include_documentation", False) else None',
        "if True else None",
        DESCRIBE,
    ),
    mutant(
        "age-of-a-segment-begins-with-each-start",
        "a node that is restarted each day never closes a weekly segment",
        "raftlake.replica.turn.segment_ages",
        "(0 if is_followed else self._age_ms(partition, active))",
        "0",
        AGES,
    ),
    mutant(
        "age-of-a-segment-by-its-newest-record",
        "a topic that is written to all the time never closes a segment for its age",
        "raftlake.replica.turn.segment_ages",
        "        time_ms = first if first >= 0 else active.timestamp_ms_max\n",
        "        time_ms = active.timestamp_ms_max\n",
        AGES,
    ),
    mutant(
        "topics-come-about-unasked",
        "auto.create.topics.enable is off by default",
        "raftlake.replica.hosting.auto_creation",
        "        if not self._engine.config.auto_create_topics or",
        "        if",
        AUTO,
    ),
    mutant(
        "topics-come-about-against-the-clients-will",
        "allow_auto_topic_creation=false: consumers that only look",
        "raftlake.replica.apis.cluster",
        "    elif not by_id and creates and",
        "    elif not by_id and",
        AUTO,
    ),
    mutant(
        "configs-of-the-nodes-told-as-the-topics-own",
        "raftlake topics describe shows what the topic says",
        "raftlake.client.config_admin",
        "if int(config.config_source) == OF_TOPIC)",
        "if int(config.config_source) >= OF_TOPIC)",
        CLIENT,
    ),
)
