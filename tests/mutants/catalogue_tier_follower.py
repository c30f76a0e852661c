"""Bugs planted in how a follower begins behind what the remote tier holds (KIP-405's follower protocol)."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

CORE = "raftlake.raft.handlers.remote_log_aux"
CORE_STATE = "raftlake.raft.state"
FETCH = "raftlake.raft.handlers.fetch"
RESPONSE = "raftlake.raft.handlers.fetch_response"
TRANSITIONS = "raftlake.raft.transitions"
BUILD = "raftlake.replica.tiering.remote_log_aux"
OFFSETS = "raftlake.replica.apis.replica_offsets"
AUXILIARY = "raftlake.replica.partition.auxiliary"
PARTITION = "raftlake.replica.partition.partition"
WIRE = "raftlake.runtime.peers.offsets"
SNAPSHOTS = "raftlake.replica.snapshots.snapshots"

SENT = ("unit/raft/test_raft_remote_log_aux.py",)
BUILT = ("unit/replica/test_replica_tiering_remote_log_aux.py",)
ASKED = ("unit/replica/test_replica_apis_replica_offsets.py",)
STATE = ("unit/replica/test_replica_partition_auxiliary.py",)
WHOLE = ("unit/replica/test_replica_tiering_recovery.py",)
SPOKEN = ("unit/runtime/test_runtime_peers_offsets.py",)

CORES = (
    mutant(
        "sent-to-a-tier-with-a-gap",
        "a follower goes to a tier that ends before the leader's log begins, and never catches up",
        CORE_STATE,
        "self.tiered_start < self.log_start <= self.tiered_end",
        "self.tiered_start < self.log_start",
        SENT,
    ),
    mutant(
        "sent-to-a-tier-that-retention-has-emptied",
        "the table begins where the local log begins: nothing before it is there",
        CORE_STATE,
        "0 <= self.tiered_start < self.log_start",
        "0 <= self.tiered_start <= self.log_start",
        SENT,
    ),
    mutant(
        "log-cut-before-the-state-is-there",
        "KRAFT: testFencedOffsetResetAfterMovedToRemoteTier, no truncation before success",
        CORE,
        "    building = role.building\n    if building is None:\n",
        "    building = role.building\n    group.cut_log(group.high_watermark)\n    if building is None:\n",
        SENT,
    ),
    mutant(
        "leader-hears-nothing-of-who-builds",
        "a leader of two voters resigns while one of them builds (check quorum)",
        "raftlake.raft.fetching",
        "    group.fetch_retry_at_ms = now_ms + max(group.config.fetch_timeout_ms // SIGNS_OF_LIFE, 1)\n",
        "    group.fetch_retry_at_ms = now_ms + 1_000_000\n",
        SENT,
    ),
    mutant(
        "attempt-of-an-old-epoch-counts",
        "a failure under the leader before ends the attempt of this one, and two go on at a time",
        CORE,
        "isinstance(role, Follower) and leader_epoch == group.epoch else None",
        "isinstance(role, Follower) else None",
        SENT,
    ),
    mutant(
        "failed-attempt-repeated-at-once",
        "a table that is down is asked at each sign of life",
        CORE,
        "not building.is_under_way and now_ms >= building.retry_at_ms",
        "not building.is_under_way",
        SENT,
    ),
    mutant(
        "attempt-goes-on-under-the-next-leader",
        "a change of leader or epoch abandons it",
        TRANSITIONS,
        "        group.actions.append(AbandonRemoteLogAux())\n",
        "        pass\n",
        SENT,
    ),
    mutant(
        "attempt-goes-on-beside-a-download",
        "a leader that names a snapshot by now ends it",
        RESPONSE,
        "    fetching.stop_building(group, role)\n",
        "",
        SENT,
    ),
    mutant(
        "fetch-below-the-local-start-acknowledges",
        "KAFKA-14077: the high watermark counts what a replica does not have",
        FETCH,
        "    if diverging is None and snapshot_id is None and not is_late:\n        # Kafka's",
        "    if diverging is None and not is_late:\n        # Kafka's",
        SENT,
    ),
    mutant(
        "no-way-without-a-tier",
        "tier.uri comes to one node after the other: the one without it never catches up",
        CORE,
        "    snapshot_id = awaited.snapshot_id if event.is_unusable else None\n",
        "    snapshot_id = None\n",
        SENT,
    ),
)

ATTEMPTS = (
    mutant(
        "epoch-before-the-local-start-guessed",
        "KRAFT 4.4: the returned epoch counts where it ends behind ELO - 1 (gaps between epochs)",
        BUILD,
        "end.epoch if end.offset >= local.offset else local.epoch",
        "local.epoch - 1 if end.offset >= local.offset else local.epoch",
        BUILT,
    ),
    mutant(
        "epoch-that-ended-earlier-taken",
        "KRAFT 4.4: only where its end lies behind ELO - 1",
        BUILD,
        "end.epoch if end.offset >= local.offset else local.epoch",
        "end.epoch",
        BUILT,
    ),
    mutant(
        "copy-of-a-fenced-leader-taken",
        "KIP-405 scenario 5: segments of another lineage lie at the same offsets",
        BUILD,
        "        if copied != epoch:\n",
        "        if copied is None:\n",
        BUILT,
    ),
    mutant(
        "later-copy-taken-unseen",
        "KIP-405 scenarios 3 to 5: after an unclean election a cut copy has no state of its own",
        BUILD,
        "self._judge(found, local, epoch_at(facts.epochs, last), epoch)",
        "self._judge(found, local, epoch, epoch)",
        BUILT,
    ),
    mutant(
        "copy-of-an-unknown-epoch-taken",
        "a log with records of an epoch above the election state stops the node at its next start",
        BUILD,
        "segment.epochs[-1][0] > self._epoch",
        "False",
        BUILT,
    ),
    mutant(
        "begins-at-the-local-start-amid-a-copy",
        "KIP-405: the producers are those at the end of the segment, and so is where to go on",
        BUILD,
        "OffsetAndEpoch(segment.end_offset, segment.epochs[-1][0])",
        "OffsetAndEpoch(segment.end_offset, segment.epochs[0][0])",
        BUILT,
    ),
    mutant(
        "incarnation-forgotten",
        "after an unclean recovery the rows of the new history count",
        BUILD,
        "        lineage = Lineage(self.partition.group, incarnation)\n",
        "        lineage = Lineage(self.partition.group, 0)\n",
        BUILT,
    ),
    mutant(
        "producers-of-the-tier-forgotten",
        "an idempotent retry from before the local log is appended again",
        BUILD,
        "write_producers(maker, auxiliary.producers)",
        "write_producers(maker, None)",
        BUILT,
    ),
    mutant(
        "all-partitions-recover-at-once",
        "a node with a thousand partitions asks for a thousand copies at a time",
        BUILD,
        "            if under_way >= BUILDS_MAX:\n                return\n",
        "",
        BUILT,
    ),
    mutant(
        "attempts-that-wait-are-forgotten",
        "the fifth partition of a node never recovers",
        BUILD,
        "            self._engine.step(build.partition, event)\n        self._begin_next()\n",
        "            self._engine.step(build.partition, event)\n",
        BUILT,
    ),
    mutant(
        "cores-hear-of-the-tier-too-late",
        "between the trimming of a log and the next look followers are sent to the snapshot",
        SNAPSHOTS,
        "            for listener in self.start_listeners:\n                listener(partition)\n",
        "",
        WHOLE,
    ),
    mutant(
        "new-leader-knows-no-tier",
        "the event must be there when leadership begins, not a second later",
        "raftlake.replica.turn.actions",
        "        else:\n            self._remote_log_aux.tell(partition)\n",
        "",
        ("unit/replica/test_replica_turn_actions_restart.py",),
    ),
    mutant(
        "voters-only-of-the-records-at-hand",
        "KIP-853: the set that counts may stand in the snapshot before the log",
        PARTITION,
        "Auxiliary(producers, self.core.voter_history.at(offset))",
        "Auxiliary(producers, None)",
        (*STATE, *WHOLE),
    ),
    mutant(
        "damaged-auxiliary-state-taken",
        "flipped bytes beside the table become sequence numbers",
        AUXILIARY,
        "        producer_snapshot.packed_rows(producers.encoded)\n",
        "",
        STATE,
    ),
)

LEADERS = (
    mutant(
        "replica-answered-like-a-client",
        "a leader that needs the replica to commit anything refuses it, and both wait for ever",
        OFFSETS,
        "    if error is ErrorCode.NONE and not partition.core.is_leader:\n",
        "    if error is ErrorCode.NONE and not partition.is_serving:\n",
        (*ASKED, *WHOLE),
    ),
    mutant(
        "local-start-of-another-epoch-told",
        "KIP-320: a leader of another epoch answers for this one",
        OFFSETS,
        "    error = fence(partition, rpc.leader_epoch)\n",
        "    error = ErrorCode.NONE\n",
        ASKED,
    ),
    mutant(
        "epoch-before-the-local-log-unknown",
        "a leader that has not applied the tier's keys still knows the epoch of the record before its log",
        OFFSETS,
        "history.start_epoch <= epoch and history.log_start > 0",
        "False",
        ASKED,
    ),
    mutant(
        "earliest-is-the-local-start",
        "KIP-405: EARLIEST is where the table begins",
        OFFSETS,
        "            start = node.remote_log.first_offset(partition)\n",
        "            start = local\n",
        ASKED,
    ),
    mutant(
        "deleted-records-hide-the-table",
        "DeleteRecords went beyond the leader's local start: replicas without a log never begin (seed 830001290)",
        OFFSETS,
        "            start = node.remote_log.first_offset(partition)\n",
        "            start = node.remote_log.start_offset(partition)\n",
        ASKED,
    ),
    mutant(
        "recreated-topic-taken-for-its-predecessor",
        "a name alone stands for whichever topic has it now",
        WIRE,
        "    name = name_of(rpc.group, quorum_topic)\n",
        "    name = rpc.group.topic\n",
        SPOKEN,
    ),
)

TIER_FOLLOWER_BUGS = (*CORES, *ATTEMPTS, *LEADERS)
