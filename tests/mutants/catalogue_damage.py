"""Planted bugs in what happens to a replica that lost records, also while voters change."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

IMPAIRMENT = "raftlake.raft.impairment"
KV = "raftlake.replica.kv.service"

DAMAGE: tuple[Mutant, ...] = (
    Mutant(
        name="impaired-replica-votes",
        source="a replica that lost what others count on cannot tell whose log is complete",
        damaged_voters=True,
        edits=(
            Edit(
                "raftlake.raft.handlers.vote",
                "    if group.impairment is not None:\n        return False\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="impaired-replica-campaigns",
        source="the same for the candidate itself",
        damaged_voters=True,
        edits=(
            Edit(
                "raftlake.raft.elections",
                "not group.is_resigning and group.impairment is None",
                "not group.is_resigning",
            ),
        ),
    ),
    Mutant(
        name="impairment-ends-before-the-records-are-back",
        source="whole again is who has synced everything below the high watermark",
        by_tests=True,
        edits=(
            Edit(
                IMPAIRMENT,
                "if high_watermark > group.flushed_end or group.epoch < lost.epoch:",
                "if group.epoch < lost.epoch:",
            ),
        ),
    ),
    Mutant(
        name="impairment-ends-while-an-old-fetch-may-count",
        source="in the epoch of the loss a leader may hold a Fetch that claims the lost records",
        theme=3,
        edits=(
            Edit(
                IMPAIRMENT,
                "    if group.epoch == lost.epoch and group.flushed_end < lost.end_offset:\n        return\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="end-of-an-answer-taken-for-the-leaders",
        source="a leader may send less than it holds, and a late Fetch claim more than was sent",
        theme=3,
        edits=(
            Edit(
                "raftlake.raft.handlers.fetch_response",
                "impairment.learn_log_end(group, response.leader_log_end)",
                "end = response.batches[-1].end_offset if response.batches else request.fetch_offset\n"
                "    impairment.learn_log_end(group, end)",
            ),
        ),
    ),
    Mutant(
        name="leader-tells-its-high-watermark-for-its-log-end",
        source="what a late Fetch claims need not be committed yet",
        theme=3,
        edits=(
            Edit(
                "raftlake.replica.replication.fetch_server",
                "                log_end = partition.core.log_end\n",
                "                log_end = partition.core.announced_high_watermark\n",
            ),
        ),
    ),
    Mutant(
        name="log-end-of-an-earlier-epoch-learned",
        source="the leader of the epoch of the loss may hold more than an earlier one did",
        by_tests=True,
        edits=(
            Edit(
                IMPAIRMENT,
                "lost is not None and group.epoch == lost.epoch and 0 <= leader_log_end",
                "lost is not None and 0 <= leader_log_end",
            ),
        ),
    ),
    Mutant(
        name="follower-waits-for-the-next-record",
        source="a leader that has nothing to tell does not answer, and the group may be idle for days",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.raft.fetching",
                "0 < group.log_start == group.log_end and role.leader_high_watermark < 0",
                "False",
            ),
        ),
    ),
    Mutant(
        name="snapshot-of-another-offset-taken",
        source="a state of the past under the name of a later one has every CRC right",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.wire.snapshots",
                "if told is not None and self._end_offset not in (None, told):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="damaged-snapshot-sent-for-ever",
        source="only who has all pieces of a snapshot knows whether it is intact, and it is not the leader",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.replica.snapshots.transfer",
                "if request.position == 0:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="repair-loses-the-answer-to-a-change-of-voters",
        source="simulator, seed 770002119",
        by_tests=True,
        edits=(
            Edit("raftlake.replica.node", "            self.voter_changes.drop,\n", ""),
            Edit(
                "raftlake.replica.turn.restart",
                "AnswerFetch, AnswerRead, AnswerVoterChange, Release",
                "AnswerFetch, AnswerRead, Release",
            ),
        ),
    ),
    Mutant(
        name="held-appends-refused-at-the-closed-log",
        source="found beside seed 770000353 of the simulator",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.replica.handover",
                "if partition is not None:\n            partition.refuse",
                "if partition is not None and self._engine.logs.impairment(group) is None:\n            partition.refuse",
            ),
        ),
    ),
    Mutant(
        name="damaged-header-believed-about-its-producer",
        source="simulator, seed 791103136",
        by_tests=True,
        places=("unit/replica/test_replica_disk_damage.py", "unit/replica/test_replica_partition_intact.py"),
        edits=(
            Edit(
                "raftlake.replica.partition.intact",
                "            if check_crc:\n                require_crc",
                "            if False:\n                require_crc",
            ),
        ),
    ),
    Mutant(
        name="producers-restored-without-the-crc",
        source="beside seed 791103136 of the simulator",
        by_tests=True,
        places=("unit/replica/test_replica_disk_damage.py",),
        edits=(
            Edit(
                "raftlake.replica.partition.start_points",
                "headers_from(self._name, chunk, offset)",
                "headers_from(self._name, chunk, offset, check_crc=False)",
            ),
        ),
    ),
    Mutant(
        name="repaired-log-shows-what-it-has-so-far",
        source="simulator, seed 780000362",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.replica.partition.partition",
                "if high_watermark >= max(self.shown_before, 1):",
                "if high_watermark > 0:",
            ),
        ),
    ),
    Mutant(
        name="log-repaired-twice-forgets-what-it-showed",
        source="found beside seed 780000362 of the simulator",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.replica.turn.restart",
                "max(before.shown_before, before.high_watermark)",
                "before.high_watermark",
            ),
        ),
    ),
    Mutant(
        name="log-cut-to-nothing-shows-nothing",
        source="found beside seed 780000362 of the simulator",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.replica.apis.fetch",
                "partition.log.end_offset > 0 or partition.shown_before > 0",
                "partition.log.end_offset > 0",
            ),
        ),
    ),
    Mutant(
        name="older-snapshot-told-beside-a-fetched-one",
        source="simulator, seed 611872952: the core has begun anew, and its log follows at the end of the turn",
        edits=(
            Edit(
                "raftlake.replica.snapshots.snapshots",
                "core.log_start <= snapshot_id.offset <= core.high_watermark",
                "snapshot_id.offset <= core.high_watermark",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_snapshots_overtaken.py",),
    ),
    Mutant(
        name="log-trimmed-before-a-fetched-snapshot",
        source="found beside seed 611872952 of the simulator",
        edits=(Edit("raftlake.replica.snapshots.snapshots", " or keep_from < partition.core.log_start:", ":"),),
        by_tests=True,
        places=("unit/replica/test_replica_snapshots_overtaken.py",),
    ),
    Mutant(
        name="what-was-collected-is-forgotten-with-a-damaged-log",
        source="simulator, seed 1140007448: a copy to the remote tier waited for its outcome without end",
        edits=(Edit(KV, "        engine.closed.append(self._on_closed)\n", ""),),
        by_tests=True,
        places=("unit/replica/test_replica_kv_service.py",),
    ),
    Mutant(
        name="any-closed-group-refuses-what-was-collected",
        source="seen while seed 1140007448 was mended: a topic that is deleted is no reason to refuse a write",
        edits=(Edit(KV, "if partition.group == self._engine.config.quorum_group:", "if partition.group:"),),
        by_tests=True,
        places=("unit/replica/test_replica_kv_service.py",),
    ),
    Mutant(
        name="what-was-refused-is-proposed-as-well",
        source="seen while seed 1140007448 was mended: who is told NOT_LEADER proposes again",
        edits=(
            Edit(
                KV,
                "collected, self._collected = self._collected, []\n            for _, done",
                "collected = self._collected\n            for _, done",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_kv_service.py",),
    ),
    Mutant(
        name="only-the-first-of-what-was-collected-is-answered",
        source="seen while seed 1140007448 was mended: a turn collects many",
        edits=(
            Edit(
                KV, "for _, done in collected:\n                done(", "for _, done in collected[:1]:\n                done("
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_kv_service.py",),
    ),
)
