"""Bugs planted in the Raft core: elections, commitment, reconciliation, reads."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

PROGRESS = "raftlake.raft.progress"
READS = "raftlake.raft.reads"
VOTE = "raftlake.raft.handlers.vote"
FETCH = "raftlake.raft.handlers.fetch"
FETCH_RESPONSE = "raftlake.raft.handlers.fetch_response"
APPEND = "raftlake.raft.handlers.append"
TRANSITIONS = "raftlake.raft.transitions"
ELECTIONS = "raftlake.raft.elections"
TIMERS = "raftlake.raft.handlers.timers"

COMMITMENT = (
    Mutant(
        name="count-self-before-sync",
        source="Kafka raises the leader's end offset before its flush; Raft §10.2.1 allows it only with the others' syncs",
        edits=(Edit(PROGRESS, "ends.append(group.flushed_end)", "ends.append(group.log_end)"),),
    ),
    Mutant(
        name="commit-older-epochs",
        source="Raft §5.4.2, figure 8",
        theme=1,
        edits=(
            Edit(
                PROGRESS,
                "if committed <= group.high_watermark or committed <= leader.epoch_start_offset:",
                "if committed <= group.high_watermark:",
            ),
        ),
    ),
    Mutant(
        name="own-epoch-check-off-by-one",
        source="KAFKA-12619",
        theme=1,
        edits=(Edit(PROGRESS, "committed <= leader.epoch_start_offset", "committed < leader.epoch_start_offset"),),
    ),
    Mutant(
        name="acknowledge-before-majority",
        source="classic: one voter less than a majority is enough",
        edits=(
            Edit(
                PROGRESS,
                "largest_reached_by(ends, group.voters.majority)",
                "largest_reached_by(ends, max(1, group.voters.majority - 1))",
            ),
        ),
    ),
    Mutant(
        name="observer-counts-as-voter",
        source="KAFKA-16530: who is no voter must not count",
        edits=(
            Edit(
                PROGRESS,
                "ends = [progress.end_offset for progress in leader.voters.values()]",
                "ends = [progress.end_offset for progress in [*leader.observers.values(), *leader.voters.values()]]",
            ),
        ),
    ),
    Mutant(
        name="follower-acknowledges-before-sync",
        source="Kafka's followers flush before their next fetch",
        edits=(
            Edit(
                "raftlake.raft.fetching",
                "if group.fetch_in_flight is not None or group.flushed_end != group.log_end:",
                "if group.fetch_in_flight is not None:",
            ),
            Edit(
                FETCH_RESPONSE, "    if group.flushed_end == group.log_end:\n        fetching", "    if True:\n        fetching"
            ),
        ),
    ),
    Mutant(
        name="fetch-of-another-epoch-counts",
        source="KIP-595 FetchRequest handling 1: a fetch of an older epoch proves nothing",
        by_tests=True,
        edits=(Edit(FETCH, "if request.leader_epoch != group.epoch:", "if request.leader_epoch > group.epoch:"),),
    ),
    Mutant(
        name="late-fetch-counts",
        source="simulator, seed 860001010",
        edits=(Edit(FETCH, "is_late = 0 < event.follows < progress.follows", "is_late = False"),),
        by_tests=True,
    ),
    Mutant(
        name="first-fetch-of-a-session-is-late",
        source="a replica that connects again tells what it has, and the leader never commits it",
        edits=(Edit(FETCH, "is_late = 0 < event.follows < progress.follows", "is_late = event.follows < progress.follows"),),
        by_tests=True,
    ),
    Mutant(
        name="fetch-behind-the-same-answer-is-late",
        source="two fetches in a row, the second one of which has more",
        edits=(
            Edit(FETCH, "is_late = 0 < event.follows < progress.follows", "is_late = 0 < event.follows <= progress.follows"),
        ),
        by_tests=True,
    ),
    Mutant(
        name="progress-never-goes-back",
        source="KAFKA-14077: a replica that lost records fetches from an earlier offset",
        by_tests=True,
        edits=(Edit(FETCH, "progress.end_offset = offset", "progress.end_offset = max(progress.end_offset, offset)"),),
    ),
    Mutant(
        name="sync-of-a-cut-tail-counts",
        source="etcd async_storage_writes_append_aba_race",
        theme=1,
        edits=(Edit(APPEND, "event.generation != group.log_generation or ", ""),),
    ),
    Mutant(
        name="high-watermark-goes-back",
        source="MonotonicHighWatermark (RaftEventSimulationTest)",
        edits=(
            Edit(
                FETCH_RESPONSE,
                "if high_watermark > group.high_watermark or (",
                "if high_watermark not in (-1, group.high_watermark) or (",
            ),
        ),
    ),
    Mutant(
        name="high-watermark-past-the-log",
        source="KIP-595: a follower's high watermark is bounded by its own log end",
        edits=(
            Edit(
                FETCH_RESPONSE,
                "high_watermark = min(response.high_watermark, group.log_end)",
                "high_watermark = response.high_watermark",
            ),
        ),
    ),
)

RECONCILIATION = (
    Mutant(
        name="high-watermark-before-divergence",
        source="KAFKA-14704",
        edits=(
            Edit(
                FETCH_RESPONSE,
                "    if response.diverging is not None:\n        made_progress",
                "    if response.high_watermark > group.high_watermark:\n"
                "        group.high_watermark = min(response.high_watermark, group.log_end)\n"
                "        group.actions.append(AdvanceHighWatermark(high_watermark=group.high_watermark))\n"
                "    if response.diverging is not None:\n        made_progress",
            ),
        ),
    ),
    Mutant(
        name="truncation-skipped",
        source="Raft §5.3: a follower deletes what conflicts",
        edits=(
            Edit(
                FETCH_RESPONSE,
                "    if end >= group.log_end:\n        return False\n",
                "    if end >= group.log_end:\n        return False\n    return True\n",
            ),
        ),
    ),
    Mutant(
        name="truncation-below-the-high-watermark",
        source="KafkaRaftLogTest.testTruncateBelowHighWatermark",
        edits=(
            Edit(
                FETCH_RESPONSE,
                "        end >= group.high_watermark,\n"
                '        f"leader {group.leader_id} of epoch {group.epoch} asks to truncate',
                '        True,\n        f"leader {group.leader_id} of epoch {group.epoch} asks to truncate',
            ),
            Edit(
                FETCH_RESPONSE,
                "    if end >= group.log_end:\n        return False\n",
                "    if end >= group.log_end:\n        return False\n"
                "    end = group.history.last_start\n"
                "    group.high_watermark = min(group.high_watermark, end)\n",
            ),
        ),
    ),
    Mutant(
        name="epoch-history-not-cut",
        source="KAFKA-10706",
        edits=(Edit(FETCH_RESPONSE, "    group.history.truncate_to(end)\n", ""),),
    ),
    Mutant(
        name="divergence-by-epoch-alone",
        source="KIP-595 FetchRequest handling 3: the offset counts too",
        edits=(Edit(FETCH, "if end.epoch != epoch or end.offset < offset:", "if end.epoch != epoch:"),),
    ),
    Mutant(
        name="divergence-not-looked-for",
        source="Raft §5.3, the consistency check",
        edits=(Edit(FETCH, "        return end, None\n", "        return None, None\n"),),
    ),
    Mutant(
        name="divergence-parked",
        source="KAFKA-15100: diverging answers must not wait in the purgatory",
        edits=(
            Edit(
                FETCH,
                "    if diverging is None and snapshot_id is None:\n        has_all = offset == group.log_end and",
                "    if True:\n        has_all = offset >= group.log_end and",
            ),
        ),
    ),
    Mutant(
        name="stale-fetch-response-accepted",
        source="testFetchResponseIgnoredAfterBecomingProspective",
        by_tests=True,
        edits=(
            Edit(
                FETCH_RESPONSE,
                "    if in_flight is not request or source != group.fetch_peer:\n        return\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="first-epoch-of-an-emptied-log-unknown",
        source="KAFKA-10761, and a bug of ours: a follower that began anew never learned the epoch of its first record",
        by_tests=True,
        edits=(
            Edit(FETCH_RESPONSE, "if batch.epoch != last_epoch or end == group.log_start:", "if batch.epoch != last_epoch:"),
        ),
    ),
)

ELECTIONS_AND_VOTES = (
    Mutant(
        name="vote-not-saved",
        source="Raft §5.2: votedFor is persistent",
        edits=(
            Edit(
                TRANSITIONS,
                "    if election != group.election:\n",
                "    if election != group.election and (voted_key is None or epoch != group.election.epoch):\n",
            ),
        ),
    ),
    Mutant(
        name="vote-forgotten-at-restart",
        source="KAFKA-14077 / KAFKA-12181: a voter that forgot votes again",
        edits=(Edit(TRANSITIONS, "    group.voted_key = saved.voted_key\n", ""),),
    ),
    Mutant(
        name="vote-forgotten-when-following",
        source="KAFKA-17641",
        edits=(
            Edit(
                TRANSITIONS, "leader_id, group.voted_key if epoch == group.epoch else None, reason)", "leader_id, None, reason)"
            ),
        ),
    ),
    Mutant(
        name="vote-granted-twice",
        source="Raft §5.2: at most one vote an epoch",
        edits=(
            Edit(VOTE, "        return _is_same_voter(group.voted_key, request.candidate)\n", "        return is_up_to_date\n"),
        ),
    ),
    Mutant(
        name="vote-without-log-check",
        source="Raft §5.4.1",
        edits=(
            Edit(
                VOTE,
                "is_up_to_date = (request.log_end.epoch, request.log_end.offset) >= (mine.epoch, mine.offset)",
                "is_up_to_date = True",
            ),
        ),
    ),
    Mutant(
        name="longer-log-wins",
        source="Raft §5.4.1: the epoch of the last record comes before the length",
        theme=1,
        edits=(
            Edit(
                VOTE,
                "(request.log_end.epoch, request.log_end.offset) >= (mine.epoch, mine.offset)",
                "request.log_end.offset >= mine.offset",
            ),
        ),
    ),
    Mutant(
        name="candidate-claims-unsynced-tail",
        source="a bug of ours, which the simulator found; Kafka claims the log end",
        by_tests=True,
        edits=(Edit(ELECTIONS, "log_end=group.synced_position", "log_end=group.log_end_position"),),
    ),
    Mutant(
        name="restarted-leader-leads-on",
        source="KAFKA-10527: a restarted leader must not lead the epoch whose offsets it may have lost",
        edits=(
            Edit(
                TRANSITIONS,
                "        role = Resigned(election_deadline_ms=deadline_ms, preferred_candidates=())\n    elif",
                "        role = Leader(\n"
                "            epoch_start_offset=group.log_end,\n"
                "            granting_voters=group.voters.ids,\n"
                "            voters={voter: ReplicaProgress(group.voters.voters[voter], now_ms)"
                " for voter in group.other_voters},\n"
                "            check_quorum_deadline_ms=now_ms + group.config.check_quorum_timeout_ms,\n"
                "            heartbeat_deadline_ms=now_ms + group.config.fetch_timeout_ms // 2,\n"
                "        )\n"
                "        role.has_begun = True\n"
                "        group.leader_id = leader_id\n    elif",
            ),
        ),
    ),
    Mutant(
        name="leader-steps-down-within-its-epoch",
        source="KAFKA-18379: a resigned leader must raise the epoch before it campaigns",
        edits=(Edit(TIMERS, "elections.detach(group, Epoch(group.epoch + 1), ", "elections.detach(group, group.epoch, "),),
    ),
    Mutant(
        name="pre-vote-raises-the-epoch",
        source="KIP-996",
        by_tests=True,
        edits=(
            Edit(
                ELECTIONS,
                "    transitions.become_prospective(group, reason, now_ms)\n    advance(group, now_ms)\n",
                "    transitions.become_prospective(group, reason, now_ms)\n"
                "    transitions.become_candidate(group, reason, now_ms)\n    advance(group, now_ms)\n",
            ),
        ),
    ),
    Mutant(
        name="pre-vote-granted-while-following",
        source="KIP-996: who hears its leader refuses",
        by_tests=True,
        edits=(Edit(VOTE, "is_up_to_date and (not role.has_fetched or is_silent)", "is_up_to_date"),),
    ),
    Mutant(
        name="no-vote-for-voters-by-a-newer-log",
        source="a bug of ours, seed 791102895: a voter that had missed the record of the voters refused the only other one",
        by_tests=True,
        places=("unit/raft/test_raft_vote_older_log.py",),
        edits=(Edit(VOTE, "return has_more and group.is_followable(candidate_id)", "return False"),),
    ),
    Mutant(
        name="vote-for-any-stranger",
        source="KIP-595: a voter rejects a candidate that is none of the voters",
        by_tests=True,
        places=("unit/raft/test_raft_vote_older_log.py",),
        edits=(Edit(VOTE, "return has_more and group.is_followable(candidate_id)", "return True"),),
    ),
    Mutant(
        name="end-of-epoch-leaves-followers-loyal",
        source="KAFKA-20895",
        by_tests=True,
        edits=(Edit("raftlake.raft.handlers.end_quorum_epoch", "        role.has_fetched = False\n", ""),),
    ),
    Mutant(
        name="epoch-bump-restarts-the-election-timer",
        source="QuorumState.transitionToUnattached: else a replica with a stale log starves everybody",
        by_tests=True,
        edits=(
            Edit(
                TRANSITIONS,
                "        deadline_ms = max(role.election_deadline_ms, now_ms)\n",
                "        deadline_ms = now_ms + group.random_election_timeout_ms()\n",
            ),
        ),
    ),
    Mutant(
        name="check-quorum-missing",
        source="KAFKA-15489",
        edits=(
            Edit(
                TIMERS,
                "leader.check_quorum_deadline_ms = majority_heard_at_ms(group, leader)",
                "leader.check_quorum_deadline_ms = now_ms",
            ),
        ),
    ),
    Mutant(
        name="begin-before-the-first-record-is-synced",
        source="testLeaderShouldSendBeginQuorumEpoch after its LeaderChange is on disk",
        by_tests=True,
        edits=(Edit(ELECTIONS, "    if leader.has_begun:\n", "    if True:\n"),),
    ),
)

READING = (
    Mutant(
        name="read-without-proof",
        source="Raft §6.4: a deposed leader must not answer",
        theme=2,
        edits=(Edit(READS, "if confirmed is not None and read.sequence >= confirmed:", "if False:"),),
    ),
    Mutant(
        name="read-confirmed-off-by-one",
        source="a round that was sent before the read arrived confirms nothing",
        theme=2,
        edits=(Edit(READS, "read.sequence >= confirmed", "read.sequence > confirmed"),),
    ),
    Mutant(
        name="read-before-own-epoch-committed",
        source="Raft §6.4 step 1, KIP-650",
        edits=(
            Edit(
                READS,
                "if not leader.pending_reads or group.high_watermark <= leader.epoch_start_offset:",
                "if not leader.pending_reads:",
            ),
        ),
    ),
)

CORE = (*COMMITMENT, *RECONCILIATION, *ELECTIONS_AND_VOTES, *READING)
