"""Bugs planted around the core: the driver's order of effects, the state machine, producers, sessions, storage."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

TURN = "raftlake.replica.turn.turn"
PARTITION = "raftlake.replica.partition.partition"
HOSTING = "raftlake.replica.hosting.hosting"
PRODUCERS = "raftlake.replica.partition.producer_state"
KV = "raftlake.replica.kv.service"
MACHINE = "raftlake.kv.machine"
READS = "raftlake.replica.replication.reads"
GUARD = "        if offset < max(self._applied_offset, 1):\n"

ORDER_OF_EFFECTS = (
    Mutant(
        name="answer-before-the-vote-is-saved",
        source="the ordering contract: what is said depends on what is on disk",
        edits=(
            Edit(
                TURN,
                "        if states:\n            dirty = self._disk.save(dirty, states)\n"
                "        for partition in dirty.values():\n            if",
                "        for partition in dirty.values():\n            if",
            ),
            Edit(
                TURN,
                "                self._syncer.mark(partition)\n",
                "                self._syncer.mark(partition)\n"
                "        if states:\n            self._engine.elections.save(states)\n",
            ),
        ),
    ),
    Mutant(
        name="acknowledged-when-appended",
        source="classic: the answer leaves before anything is replicated",
        edits=(Edit(PARTITION, "        if end_offset <= self.high_watermark or", "        if True or"),),
    ),
    Mutant(
        name="sync-reported-when-it-begins",
        source="a sync covers what was written before it began, and counts when it has ended",
        edits=(
            Edit(
                "raftlake.replica.disk.syncer",
                "        self._under_way = True\n",
                "        self._under_way = True\n"
                "        for partition, end_offset, generation in covered:\n"
                "            self._engine.step(partition, RecordsFlushed(end_offset=end_offset, generation=generation))\n",
            ),
        ),
    ),
    Mutant(
        name="sync-covers-what-came-later",
        source="what is appended while a sync is under way waits for the next one",
        edits=(
            Edit(
                "raftlake.replica.disk.syncer",
                "RecordsFlushed(end_offset=end_offset, generation=generation))\n        except",
                "RecordsFlushed(end_offset=partition.core.log_end, generation=generation))\n        except",
            ),
        ),
    ),
    Mutant(
        name="failed-sync-ignored",
        source="PostgreSQL's fsync surprise of 2018: a failed fsync is final",
        edits=(Edit("raftlake.replica.disk.syncer", "        if error is not None:\n", "        if False:\n"),),
    ),
    Mutant(
        name="unknown-append-told-as-refused",
        source="a write whose leader was lost may still be committed by the next one",
        edits=(
            Edit(
                PARTITION,
                "ErrorCode.NOT_LEADER_OR_FOLLOWER if retry_is_safe else ErrorCode.REQUEST_TIMED_OUT",
                "ErrorCode.NOT_LEADER_OR_FOLLOWER",
            ),
        ),
    ),
    Mutant(
        name="latest-offset-before-own-epoch-committed",
        source="KIP-207: a new leader's high watermark may lag",
        edits=(
            Edit(
                PARTITION,
                "        return core.is_leader and self.high_watermark > core.epoch_start_offset",
                "        return core.is_leader",
            ),
        ),
    ),
    Mutant(
        name="consumers-see-uncommitted-records",
        source="Kafka's consumers read up to the high watermark",
        edits=(
            Edit(
                "raftlake.replica.apis.shown_records",
                "partition.read_shown(Offset(offset), limit, size_max)",
                "partition.read_shown(Offset(offset), partition.log.end_offset, size_max)",
            ),
        ),
    ),
    Mutant(
        name="consumers-answered-before-the-own-epoch-commits",
        source="what a new leader knows to be committed may lie below what consumers saw before it",
        edits=(Edit("raftlake.replica.apis.fetch", "if partition.core.is_leader and not partition.is_serving:", "if False:"),),
    ),
    Mutant(
        name="follower-shows-less-than-was-asked-for",
        source="KIP-392: what lies behind a follower's high watermark is not available there",
        edits=(
            Edit(
                "raftlake.replica.apis.fetch",
                "    if offset <= high_watermark:\n        return ErrorCode.NONE\n",
                "    if offset <= partition.log.end_offset:\n        return ErrorCode.NONE\n",
            ),
            Edit("raftlake.replica.apis.fetch", "fetch_offset == high_watermark\n", "fetch_offset >= high_watermark\n"),
        ),
    ),
    Mutant(
        name="divergence-at-the-end-not-looked-for",
        source="KIP-320: a tail that was replaced by as many records goes unseen until there is one more",
        by_tests=True,
        edits=(Edit("raftlake.replica.apis.fetch", "(is_at_end and not partition.is_serving)", "is_at_end"),),
    ),
    Mutant(
        name="follower-sends-back-who-knows-a-newer-epoch",
        source="KIP-392: a follower at its end may not have the record yet whose epoch ListOffsets told",
        by_tests=True,
        edits=(Edit("raftlake.replica.apis.fetch", "(is_at_end and not partition.is_serving)", "False"),),
    ),
    Mutant(
        name="epoch-ends-told-before-the-own-epoch-commits",
        source="KIP-320: an end below what a consumer has read tells it that its records were cut",
        by_tests=True,
        edits=(Edit("raftlake.replica.apis.offsets", "if not is_replica and not partition.is_serving:", "if False:"),),
    ),
    Mutant(
        name="epoch-ends-above-the-high-watermark",
        source="KIP-320: what is not committed may vanish, and a consumer that was told of it would call that a truncation",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.replica.apis.offsets",
                "end.offset if is_replica else min(end.offset, partition.high_watermark)",
                "end.offset",
            ),
        ),
    ),
    Mutant(
        name="retention-above-the-high-watermark",
        source="KIP-405: only committed segments may go",
        edits=(
            Edit(
                "raftlake.replica.partition.retention",
                "        if segment.end_offset > below:\n            break\n",
                "",
            ),
        ),
    ),
)

PRODUCERS_AND_STATE = (
    Mutant(
        name="duplicate-after-failover",
        source="KIP-98: a follower knows the sequences of what it replicates",
        edits=(
            Edit(
                PARTITION,
                "            self._facts.remember(batch.payload.header, now_ms, batch.payload.marker)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        name="sequences-not-checked",
        source="KIP-98",
        edits=(
            Edit(
                PRODUCERS,
                "        if not rows:\n            if (not history",
                "        if True:\n            return None\n        if not rows:\n            if (not history",
            ),
        ),
    ),
    Mutant(
        name="sequences-of-a-cut-tail-kept",
        source="a batch that was truncated is not a duplicate when it comes again",
        edits=(
            Edit(
                PARTITION,
                "        self.log.truncate_to(end_offset)\n        self.rebuild_producers()\n",
                "        self.log.truncate_to(end_offset)\n",
            ),
        ),
    ),
    Mutant(
        name="only-the-last-batch-remembered",
        source="KIP-98: a producer may have five batches under way, and repeat any of them",
        edits=(Edit(PRODUCERS, "_KEPT_BYTES = (BATCHES_KEPT - 1) * ENTRY.size", "_KEPT_BYTES = -(1 << 40)"),),
    ),
    Mutant(
        name="producers-go-with-old-segments",
        source="what retention deletes may be repeated all the same",
        trims=True,
        edits=(
            Edit(
                "raftlake.replica.partition.start_points",
                "            self.producers.restore(rows, notes.ended)\n",
                "            self.producers.restore(rows if log.start_offset == 0 else [], notes.ended)\n",
            ),
        ),
    ),
    Mutant(
        name="snapshots-without-producers",
        source="a bug of ours: who began behind a fetched snapshot appended again what was before it",
        trims=True,
        edits=(
            Edit(HOSTING, "partition.reset(start, inherited)", "partition.reset(start, None)"),
            Edit(HOSTING, "voters_from, inherited, tally", "voters_from, None, tally"),
        ),
    ),
    Mutant(
        name="applied-twice",
        source="StateMachineSafety (Raft §5.4.3); the machine itself must notice",
        edits=(
            Edit(
                KV,
                "        offset, size, machine = self.machine.applied_offset, 0, self.machine\n",
                "        offset, size, machine = max(self.machine.applied_offset - 1, 1), 0, self.machine\n",
            ),
        ),
    ),
    Mutant(
        name="applied-out-of-order",
        source="StateMachineSafety (Raft §5.4.3)",
        edits=(
            Edit(
                KV,
                "            for record in decode_records(chunk):\n                if offset",
                "            found = list(decode_records(chunk))\n"
                "            for record, other in zip(found, reversed(found)):\n                if offset",
            ),
            Edit(KV, "record.offset, record.value or", "record.offset, other.value or"),
        ),
    ),
    Mutant(
        name="compare-when-proposed",
        source="classic: the compares of a transaction hold at its place in the log or not at all",
        edits=(
            Edit(
                KV,
                "        encoded = encode(txn)\n        no_room",
                "        if not self.machine._failed_compares(txn.compares):\n"
                "            txn = Txn(compares=(), ops=txn.ops)\n"
                "        encoded = encode(txn)\n        no_room",
            ),
        ),
    ),
    Mutant(
        name="unknown-proposal-tried-again",
        source="a proposal without an answer may have been committed",
        edits=(
            Edit(
                "raftlake.replica.kv.forwarding",
                "            self._done(ProposeOutcome(ProposeStatus.UNKNOWN))\n        elif reply.error is not",
                "            self._on_outcome(ProposeOutcome(ProposeStatus.NOT_LEADER))\n        elif reply.error is not",
            ),
        ),
    ),
    Mutant(
        name="follower-read-without-wait",
        source="KIP-650: a follower answers once it has applied the leader's offset",
        edits=(Edit(READS, "partition.high_watermark < result.applied_offset:", "False:"),),
    ),
    Mutant(
        name="read-shares-a-question-under-way",
        source="the offset may have been proven before the read arrived",
        theme=2,
        edits=(
            Edit(
                READS,
                "        if self._under_way or not self._gathering:\n            return\n",
                "        if self._under_way:\n"
                "            self._asked, self._gathering = [*self._asked, *self._gathering], []\n"
                "            return\n"
                "        if not self._gathering:\n            return\n",
            ),
        ),
    ),
)

SESSIONS = (
    Mutant(
        name="session-forgets-a-group",
        source="KIP-227: a group that found no room in one answer has its turn in the next",
        edits=(
            Edit(
                "raftlake.replica.replication.fetch_server",
                "            if budget <= 0:\n                session.ready[group] = action\n",
                "            if budget <= 0:\n",
            ),
        ),
    ),
    Mutant(
        name="broken-session-forgets-its-groups",
        source="KIP-227: a new session lists everything",
        edits=(
            Edit("raftlake.replica.replication.fetcher", "            self._wanted = {**self._parked, **self._wanted}\n", ""),
        ),
    ),
    Mutant(
        name="round-follows-an-answer-on-its-way",
        source="a round proves a read only when its sender had seen the answer before it",
        theme=2,
        edits=(
            Edit(
                "raftlake.replica.replication.fetch_server",
                "        session.last_round_ms = now_ms\n",
                "        session.last_round_ms = now_ms\n"
                "        if rpc.session_epoch > 0:\n"
                "            session.follows = self.answer_sequence\n",
            ),
        ),
    ),
    Mutant(
        name="late-round-takes-a-group-silently",
        source="one session of a replica waits for a group; who waits in another one must hear that it does so in vain",
        edits=(
            Edit(
                "raftlake.replica.replication.fetch_server",
                "        other.held[group] = AnswerFetch(\n",
                "        _ = AnswerFetch(\n",
            ),
        ),
    ),
    Mutant(
        name="answer-speaks-for-later-questions",
        source="a round without news is a sign of life for the groups that it carried",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.replica.replication.fetcher",
                "group in self._wanted or group in self._unproven",
                "group in self._wanted",
            ),
        ),
    ),
    Mutant(
        name="old-view-steers-voters-back",
        source="KIP-853: a group follows the quorum's voters, never an older set of them",
        by_tests=True,
        edits=(Edit("raftlake.replica.voters.changes", "if self._proven.get(group) == core.epoch:", "if True:"),),
    ),
    Mutant(
        name="resigned-leader-lives-on",
        source="EndQuorumEpoch: a leader that resigned does not lead that epoch again",
        by_tests=True,
        edits=(Edit("raftlake.raft.handlers.end_quorum_epoch", "        role.has_leader_resigned = True\n", ""),),
    ),
    Mutant(
        name="damaged-batches-taken-over",
        source="KAFKA-18723",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.replica.replication.fetcher",
                "            headers = validate(view, is_from_log=True)\n",
                "            headers = list(iterate_headers(view))\n",
            ),
        ),
    ),
)

STORAGE = (
    Mutant(
        name="election-file-not-synced",
        source="Raft §5.2: the vote is on disk before it is answered",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.storage.election",
                "seal(encode(state, self._voters)))",
                "seal(encode(state, self._voters)), sync=False)",
            ),
        ),
    ),
    Mutant(
        name="election-states-not-synced",
        source="Raft §5.2, for the partitions' states in one file",
        by_tests=True,
        edits=(Edit("raftlake.storage.election_journal", "            sync_data(self._descriptor)\n", "            pass\n"),),
    ),
    Mutant(
        name="election-states-without-copy",
        source="a bit that flips in the last line, taken for torn, would make a vote forgotten that was answered",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.storage.election_journal",
                "        for file in self._files:\n            file.append(line)\n",
                "        self._files[0].append(line)\n",
            ),
        ),
    ),
    Mutant(
        name="torn-election-state-left-behind",
        source="the next append would end in the middle of what a crash left of the one before",
        by_tests=True,
        edits=(Edit("raftlake.storage.election_journal", "second is None or flaws:", "second is None:"),),
    ),
    Mutant(
        name="damaged-election-states-accepted",
        source="a state that was told would be forgotten",
        by_tests=True,
        edits=(Edit("raftlake.storage.election_journal", "        if len(flaws) == 2:\n", "        if False:\n"),),
    ),
    Mutant(
        name="missing-election-file-means-new",
        source="KAFKA-14077: a voter without its file would vote again",
        by_tests=True,
        edits=(
            Edit(
                "raftlake.storage.election",
                "            if directory.is_dir():\n                elsewhere",
                "            if False:\n                elsewhere",
            ),
        ),
    ),
)

DRIVER = (*ORDER_OF_EFFECTS, *PRODUCERS_AND_STATE, *SESSIONS, *STORAGE)
