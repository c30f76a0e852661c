"""Planted bugs: what a comparison with Kafka's own Raft corrected."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

FETCH = "raftlake.raft.handlers.fetch"
FETCH_RESPONSE = "raftlake.raft.handlers.fetch_response"
FETCH_SNAPSHOT = "raftlake.raft.handlers.fetch_snapshot"
BEGIN = "raftlake.raft.handlers.begin_quorum_epoch"
TIMERS = "raftlake.raft.handlers.timers"
TRANSITIONS = "raftlake.raft.transitions"
ELECTIONS = "raftlake.raft.elections"
OUTBOX = "raftlake.raft.outbox"
QUORUM = "raftlake.raft.quorum"
FETCHER = "raftlake.replica.replication.fetcher"
CORE_TESTS = ("unit/raft/test_raft_*.py", "kip/test_kafka_scenarios_*.py")

FETCH_VALIDATION = (
    Mutant(
        name="empty-replica-sent-to-a-snapshot-that-is-not-there",
        source="RaftLog.validateOffsetAndEpoch: offset 0 of a log that begins at 0 is valid",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(FETCH, "    if offset == 0 == log_start:\n        return None, None\n", ""),),
    ),
    Mutant(
        name="offset-zero-is-valid-behind-a-trimmed-log-too",
        source="scenario 70: what lies below the log start is in the snapshot alone",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                FETCH,
                "    if offset == 0 and group.snapshot_id is not None:\n        return None, group.snapshot_id\n"
                "    if offset == 0 == log_start:\n",
                "    if offset == 0:\n",
            ),
        ),
    ),
    Mutant(
        name="log-start-with-another-epoch-is-valid",
        source="scenario 72: testFetchRequestAtLogStartOffsetWithInvalidEpoch",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(FETCH, " or (offset == log_start and epoch != history.start_epoch):", ":"),),
    ),
    Mutant(
        name="epoch-older-than-the-snapshots-diverges",
        source="scenario 72: testFetchRequestWithLastFetchedEpochLessThanOldestSnapshot",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(FETCH, "offset < log_start or epoch < history.start_epoch or", "offset < log_start or"),),
    ),
    Mutant(
        name="epoch-that-begins-at-the-offset-is-valid",
        source="off by one: a Fetch whose last epoch begins at its very offset claims a record that is not there",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(FETCH, "history.first_offset(epoch) >= offset:", "history.first_offset(epoch) > offset:"),),
    ),
    Mutant(
        name="last-fetched-epoch-of-the-own-epoch-refused",
        source="off by one: KafkaRaftClient.handleFetchRequest refuses a later epoch than the leader's, not an equal one",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                FETCH, "request.last_fetched_epoch > request.leader_epoch", "request.last_fetched_epoch >= request.leader_epoch"
            ),
        ),
    ),
)

ROUNDS = (
    Mutant(
        name="pre-vote-that-timed-out-waits-for-another-timeout",
        source="QuorumState.transitionToUnattached: what remains of the election timeout is 0",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(TRANSITIONS, "now_ms + group.random_short_jitter_ms()", "now_ms + group.random_election_timeout_ms()"),),
    ),
    Mutant(
        name="pre-votes-that-timed-out-wait-longer-each-time",
        source="the backoff is for elections that somebody refused, not for a network that was away",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(TRANSITIONS, "now_ms + group.random_short_jitter_ms()", "now_ms + group.random_jitter_ms()"),),
    ),
    Mutant(
        name="pre-vote-that-timed-out-is-asked-again-at-once",
        source="two that time out together would go on in step, and no Fetch would look for a leader",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(TRANSITIONS, "now_ms + group.random_short_jitter_ms()", "now_ms"),),
    ),
    Mutant(
        name="lost-pre-vote-is-asked-again-after-a-jitter",
        source="a majority that refuses follows a leader; KIP-996 waits for an election timeout",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                TRANSITIONS,
                "    else:\n        deadline_ms = now_ms + group.random_election_timeout_ms()\n    same_epoch",
                "    else:\n        deadline_ms = now_ms + group.random_short_jitter_ms()\n    same_epoch",
            ),
        ),
    ),
    Mutant(
        name="split-candidate-does-not-back-off",
        source="KIP-595 Gridlocked Elections: candidates that take each other's votes must get out of step",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                ELECTIONS,
                "        candidate.is_refused = True\n        group.failed_elections += 1\n",
                "        candidate.is_refused = True\n        group.failed_elections = 0\n",
            ),
        ),
    ),
    Mutant(
        name="no-fetch-behind-a-lost-pre-vote",
        source='testProspectiveTransitionsToUnattachedOnElectionFailure: "to attempt re-discovering leader"',
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                ELECTIONS,
                "group.epoch, reason, now_ms)\n        fetching.send_fetch(group, now_ms)\n\n\ndef follow(",
                "group.epoch, reason, now_ms)\n\n\ndef follow(",
            ),
        ),
    ),
    Mutant(
        name="pre-vote-round-ends-a-millisecond-late",
        source="off by one: a deadline that is reached and not acted upon stays due, and the loop spins",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(TIMERS, "    if now_ms < role.election_deadline_ms:\n", "    if now_ms <= role.election_deadline_ms:\n"),),
    ),
    Mutant(
        name="half-of-the-votes-is-no-lost-round",
        source="off by one: two refusals of four leave two, which are no majority of four",
        by_tests=True,
        places=("unit/raft/test_raft_quorum.py", *CORE_TESTS),
        edits=(
            Edit(
                QUORUM,
                "return len(self._voters) - refused < self._voters.majority",
                "return len(self._voters) - refused < self._voters.majority - 1",
            ),
        ),
    ),
)

LATE_ANSWERS = (
    Mutant(
        name="answer-to-an-equal-request-counts",
        source="Kafka drops late answers by their correlation id; the pre-vote of the next round says the same",
        by_tests=True,
        places=("unit/raft/test_raft_late_answers.py",),
        edits=(Edit(OUTBOX, "outbox.in_flight.get(voter) is not request:", "outbox.in_flight.get(voter) != request:"),),
    ),
    Mutant(
        name="answer-to-an-equal-fetch-counts",
        source="testFetchResponseIgnoredAfterBecomingProspective, once the same leader is followed again",
        by_tests=True,
        places=("unit/raft/test_raft_late_answers.py",),
        edits=(Edit(FETCH_RESPONSE, "    if in_flight is not request or source", "    if in_flight != request or source"),),
    ),
    Mutant(
        name="failure-of-an-equal-fetch-counts",
        source="the failure of an old Fetch says nothing about the one that is under way",
        by_tests=True,
        places=("unit/raft/test_raft_late_answers.py",),
        edits=(
            Edit(FETCH_RESPONSE, "group.fetch_in_flight is event.request and", "group.fetch_in_flight == event.request and"),
        ),
    ),
    Mutant(
        name="piece-of-the-download-before-counts",
        source="a snapshot that came damaged is fetched anew, perhaps from a file that was written anew",
        by_tests=True,
        places=("unit/raft/test_raft_late_answers.py",),
        edits=(Edit(FETCH_SNAPSHOT, "group.fetch_in_flight is not request or", "group.fetch_in_flight != request or"),),
    ),
    Mutant(
        name="round-from-before-the-leader-was-followed-counts",
        source="a replica that gave its leader up and follows it again has not fetched from it since",
        by_tests=True,
        places=("unit/raft/test_raft_late_answers.py",),
        edits=(Edit(FETCH_RESPONSE, "max(role.since_ms, role.suspected_at_ms)", "role.suspected_at_ms"),),
    ),
    Mutant(
        name="round-answers-a-question-that-has-not-left",
        source="an answered round says nothing about a group whose new Fetch waits to be sent",
        by_tests=True,
        places=("unit/replica/test_replica_replication_fetch_server_fetcher.py",),
        edits=(Edit(FETCHER, "group in self._wanted or group in self._unproven", "group in self._unproven"),),
    ),
    Mutant(
        name="wanted-for-a-moment-and-never-forgotten",
        source="simulator, seed 799001465: a leader that had been replaced answered a linearizable read",
        by_tests=True,
        places=("unit/replica/test_replica_replication_fetcher_forgotten.py",),
        edits=(
            Edit(
                FETCHER,
                "        self._wanted[group] = request\n",
                "        self._forgotten.pop(group, None)\n        self._wanted[group] = request\n",
            ),
        ),
    ),
    Mutant(
        name="round-of-a-refused-fetch-proves-the-leader",
        source="simulator, seeds 797008267 and 797011128: a leader that had been replaced answered a linearizable read",
        by_tests=True,
        places=("unit/raft/test_raft_reads.py", "unit/replica/test_replica_replication_reads.py"),
        edits=(Edit(FETCH, " or event.leader_epoch != group.epoch:", ":"),),
    ),
    Mutant(
        name="round-told-in-the-leaders-own-epoch",
        source="the epoch of a round is that of the Fetch which it covers",
        by_tests=True,
        places=("unit/replica/test_replica_replication_reads.py",),
        edits=(
            Edit(
                "raftlake.replica.replication.fetch_server",
                "self._engine.step(partition, confirmed)",
                "confirmed.leader_epoch = partition.core.epoch; self._engine.step(partition, confirmed)",
            ),
        ),
    ),
)

DIFFERENCES = (
    Mutant(
        name="resigned-leader-names-itself",
        source="docs/protocol/elections.md: a resigned leader names no leader",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                TRANSITIONS,
                "        group.leader_id = NO_LEADER\n    else:\n        _set_election",
                "        pass\n    else:\n        _set_election",
            ),
        ),
    ),
    Mutant(
        name="leader-forgets-its-own-vote",
        source="Raft §5.2: one vote an epoch, and the own one is on record",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                TRANSITIONS,
                "_enter(group, leader, group.epoch, group.local.id, group.voted_key, reason)",
                "group.voted_key = None\n    _enter(group, leader, group.epoch, group.local.id, group.voted_key, reason)",
            ),
        ),
    ),
    Mutant(
        name="lost-candidate-restarts-as-candidate",
        source="QuorumState.initialize asks for the own vote first, and restarts as Candidate of an epoch that has a leader",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                TRANSITIONS,
                "    elif group.is_followable(leader_id):\n",
                "    elif group.is_followable(leader_id) and saved.voted_key != group.local:\n",
            ),
            Edit(
                TRANSITIONS,
                "    elif leader_id == NO_LEADER and group.may_stand() and saved",
                "    elif group.may_stand() and saved",
            ),
        ),
    ),
    Mutant(
        name="vote-without-a-directory-is-taken-for-the-own",
        source="a vote for this number may have been for another disk (KIP-853)",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                TRANSITIONS,
                "saved.voted_key == group.local and group.impairment",
                "saved.voted_key is not None and saved.voted_key.id == group.local.id and group.impairment",
            ),
        ),
    ),
    Mutant(
        name="known-leader-does-not-end-a-pre-vote",
        source="the leader that was about to be replaced is alive, and says so",
        by_tests=True,
        places=CORE_TESTS,
        edits=(Edit(BEGIN, "isinstance(group.role, (Prospective, Unattached))", "isinstance(group.role, Unattached)"),),
    ),
    Mutant(
        name="error-of-a-new-leader-tells-a-high-watermark",
        source="pitfall 2: a leader announces none before its own epoch has committed",
        by_tests=True,
        places=CORE_TESTS,
        edits=(
            Edit(
                FETCH,
                "high_watermark=group.announced_high_watermark if group.is_leader else group.high_watermark,",
                "high_watermark=group.announced_high_watermark if error is ErrorCode.NONE else group.high_watermark,",
            ),
        ),
    ),
)

CORRECTIONS: tuple[Mutant, ...] = (*FETCH_VALIDATION, *ROUNDS, *LATE_ANSWERS, *DIFFERENCES)
