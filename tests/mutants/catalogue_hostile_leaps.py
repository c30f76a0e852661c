"""Bugs planted in what keeps forged epochs from ending a quorum, and from keeping honest ones out."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

LEAPS = "raftlake.raft.leaps"
CREDIT = "raftlake.raft.credit"
COMMON = "raftlake.raft.handlers.common"
ELECTIONS = "raftlake.raft.elections"
REPORTS = "raftlake.replica.reports"
#: One replica; several.
ALONE, TOGETHER = "unit/raft/test_raft_leaps.py", "unit/raft/test_raft_forged_epochs.py"
ASKED = "unit/raft/test_raft_leaps_asked.py"

TOO_MUCH = (
    Mutant(
        name="refused-one-is-never-asked",
        source="seed 796001477: a removed voter above its leader followed nobody for good",
        edits=(Edit(COMMON, "    if group.is_leader and remote_id not in", "    if False and remote_id not in"),),
        by_tests=True,
        places=(ASKED,),
    ),
    Mutant(
        name="refused-ones-are-asked-without-end",
        source="seed 796001477: each forged request would make a leader send one",
        edits=(Edit(LEAPS, "return group.credit.questions.spend(1, now_ms)", "return True"),),
        by_tests=True,
        places=(ASKED,),
    ),
    Mutant(
        name="leader-that-cannot-ask-saves-nothing",
        source="seed 796001477: the address of an observer may not be known",
        edits=(Edit(LEAPS, "    group.credit.requests.save_for(refused - group.epoch, now_ms)\n", ""),),
        by_tests=True,
        places=(ASKED,),
    ),
    Mutant(
        name="more-by-requests-than-comes-back-soon",
        source="seed 1066 with epochs forged: a removed voter stood far above its leader, and followed nobody for minutes",
        edits=(Edit(CREDIT, "REQUEST_STEPS, REQUEST_STEP_MS = 40, 250", "REQUEST_STEPS, REQUEST_STEP_MS = 1_000, 250"),),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="observer-takes-as-much-as-a-voter",
        source="seed 3 with epochs forged: it followed nobody for most of a minute",
        edits=(Edit(CREDIT, "OBSERVER_STEPS, OBSERVER_STEP_MS = 10, 10_000", "OBSERVER_STEPS, OBSERVER_STEP_MS = 39, 10_000"),),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="answers-may-leap",
        source="issue 10: jumps are refused in requests and answers alike",
        edits=(Edit(LEAPS, "    if leap <= 0 or group.credit.answers.spend(leap, now_ms):\n", "    if True:\n"),),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="small-leaps-do-not-add-up",
        source="issue 10: two thousand messages do what one may not",
        edits=(Edit(CREDIT, "        self._amount -= sum_\n", ""),),
        by_tests=True,
        places=(ALONE, "unit/raft/test_raft_credit.py"),
    ),
    Mutant(
        name="leader-that-nobody-knows-raises-the-epoch",
        source="issue 10: BeginQuorumEpoch of an unknown replica",
        edits=(Edit(COMMON, "    if epoch > group.epoch and not group.is_followable(leader_id):\n", "    if False:\n"),),
        by_tests=True,
        places=("unit/raft/test_raft_begin_quorum_epoch.py",),
    ),
    Mutant(
        name="one-voter-taken-for-a-majority",
        source="issue 10: one damaged voter, or its address in another's hands, ends the epochs",
        edits=(
            Edit(
                LEAPS,
                "for voter in others], majority)",
                "for voter in others], 1)",
            ),
        ),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="old-node-at-a-bootstrap-address-waited-for",
        source="issue 10: an observer of a recovered quorum follows the old line of epochs in the end",
        edits=(
            Edit(
                LEAPS,
                "    if source in group.other_voters:\n        group.credit.answers.save_for",
                "    if source:\n        group.credit.answers.save_for",
            ),
        ),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="provoked-candidacies-unbounded",
        source="issue 10: a forged EndQuorumEpoch makes a candidate at once, hundreds of epochs a second",
        edits=(
            Edit(
                LEAPS, "return group.epoch < EPOCH_MAX and group.credit.own.spend(1, now_ms)", "return group.epoch < EPOCH_MAX"
            ),
        ),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="candidacy-above-the-last-epoch",
        source="issue 10: it cannot be written down, and the node stops",
        edits=(Edit(LEAPS, "    return group.epoch < EPOCH_MAX and group.credit", "    return group.credit"),),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="time-without-leaps-saved-for-one",
        source="issue 10: after a quiet year one message may take what is left",
        edits=(Edit(CREDIT, "        if self._amount + earned >= self._limit:\n", "        if False:\n"),),
        by_tests=True,
        places=("unit/raft/test_raft_credit.py",),
    ),
)

TOO_LITTLE = (
    Mutant(
        name="requests-spend-what-answers-have",
        source="issue 10: one forged BeginQuorumEpoch at the limit left no epoch to honest candidates for an hour",
        edits=(Edit(LEAPS, "group.credit.answers.spend(leap, now_ms)", "_of_requests(group).spend(leap, now_ms)"),),
        by_tests=True,
        places=(ALONE, TOGETHER),
    ),
    Mutant(
        name="spent-steps-do-not-come-back",
        source="issue 10: an election takes one step, be the room spent as it may",
        edits=(Edit(CREDIT, "        earned = (now_ms - self._earned_at_ms) // self._step_ms\n", "        earned = 0\n"),),
        by_tests=True,
        places=(ALONE, "unit/raft/test_raft_credit.py"),
    ),
    Mutant(
        name="refused-leader-spends-the-steps",
        source="issue 10: steps that move nobody are taken from honest candidates for nothing",
        edits=(
            Edit(
                COMMON,
                "    if epoch > group.epoch and not group.is_followable(leader_id):\n",
                "    if not leaps.may_enter(group, epoch, leader_id, now_ms, is_answer=False):\n"
                "        return ErrorCode.INVALID_REQUEST\n"
                "    if epoch > group.epoch and not group.is_followable(leader_id):\n",
            ),
        ),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="majority-far-ahead-not-believed",
        source="issue 10: a voter that was away while the others went on was locked out for good",
        edits=(Edit(LEAPS, "    if len(others) < majority:\n", "    if True:\n"),),
        by_tests=True,
        places=(ALONE, TOGETHER),
    ),
    Mutant(
        name="answer-of-the-first-voter-forgotten",
        source="issue 10: a majority answers one after the other",
        edits=(
            Edit(
                LEAPS,
                "{voter: told[voter] for voter in group.other_voters if voter in told} | {source: epoch}",
                "{voter: told[voter] for voter in () if voter in told} | {source: epoch}",
            ),
        ),
        by_tests=True,
        places=(TOGETHER,),
    ),
    Mutant(
        name="minority-that-is-left-never-believed",
        source="issue 10: two of three that lie far apart elect nobody, ever",
        edits=(Edit(LEAPS, "        group.credit.answers.save_for(leap, now_ms)\n", "        pass\n"),),
        by_tests=True,
        places=(TOGETHER,),
    ),
    Mutant(
        name="savings-end-with-the-first-step",
        source="issue 10: honest elections meanwhile begin the wait anew",
        edits=(Edit(CREDIT, "self._limit = max(self._most, self._amount)", "self._limit = self._most"),),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="observer-keeps-its-epoch-to-itself",
        source="issue 10: one forged epoch keeps an observer out, since the leader refuses its fetches",
        edits=(
            Edit(
                ELECTIONS,
                "    if not may_campaign(group):\n        ask_epoch",
                "    if group.impairment is not None:\n        ask_epoch",
            ),
        ),
        by_tests=True,
        places=(TOGETHER,),
    ),
    Mutant(
        name="announcement-to-known-voters-alone",
        source="issue 10: a leader that an old log does not know refuses an observer's fetches as well",
        edits=(
            Edit(
                ELECTIONS,
                "    if not may_campaign(group):\n        ask_epoch",
                "    if not may_campaign(group) and peer in group.voters:\n        ask_epoch",
            ),
        ),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="voter-told-to-lead-waits",
        source="issue 10: BeginQuorumEpoch in the name of a voter that must not take that epoch up",
        edits=(Edit(COMMON, "        _rise_above_own_epoch(group, epoch, source, now_ms)\n", ""),),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="won-pre-vote-forgotten-while-waiting",
        source="issue 10: who may stand again in a moment is not sent back to wait for a leader",
        edits=(Edit(ELECTIONS, "        group.role.is_waiting = True\n", ""),),
        by_tests=True,
        places=(ALONE,),
    ),
    Mutant(
        name="alarm-stays-when-the-node-has-caught-up",
        source="issue 10: a node that was away refuses one voter's word before it hears the second one's",
        edits=(Edit(REPORTS, "            refusals.alarm = None\n", "            pass\n"),),
        by_tests=True,
        places=("unit/replica/test_replica_reports.py",),
    ),
    Mutant(
        name="wait-for-the-last-refusal-alone",
        source="issue 10: the alarm of a higher epoch ends with a lower one",
        edits=(Edit(REPORTS, "max(report.epoch, refusals.awaited)", "report.epoch"),),
        by_tests=True,
        places=("unit/replica/test_replica_reports.py",),
    ),
    Mutant(
        name="alarm-ends-a-while-after-the-first-refusal",
        source="issue 10: the alarm about a forged epoch stood until a restart; it ends when the forger is gone",
        edits=(Edit(REPORTS, "refusals.last_ms = now_ms\n", "refusals.last_ms = refusals.last_ms or now_ms\n"),),
        by_tests=True,
        places=("unit/replica/test_replica_reports.py",),
    ),
    Mutant(
        name="alarm-that-is-over-keeps-its-epoch",
        source="issue 10: an alarm that came again waited for the epoch of the one before",
        edits=(Edit(REPORTS, "refusals.alarm, refusals.awaited = None, Epoch(-1)", "refusals.alarm = None"),),
        by_tests=True,
        places=("unit/replica/test_replica_reports.py",),
    ),
    Mutant(
        name="refusal-hides-that-epochs-come-to-an-end",
        source="issue 10: both alarms of one group stood in one place",
        edits=(Edit(REPORTS, "found.setdefault(group, refusals.alarm)", "found[group] = refusals.alarm"),),
        by_tests=True,
        places=("unit/replica/test_replica_reports.py",),
    ),
)

FOUND_BY_FORGING = (
    Mutant(
        name="new-voter-in-a-long-round-called-lagging",
        source="simulator, seed 167 with forged epochs: a group kept its old voters for as long as nobody wrote",
        edits=(
            Edit("raftlake.replica.voters.changes", "            if isinstance(step, AddVoter):\n", "            if False:\n"),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_apis_voters_changes.py",),
    ),
)

HOSTILE_LEAPS = (*TOO_MUCH, *TOO_LITTLE, *FOUND_BY_FORGING)
