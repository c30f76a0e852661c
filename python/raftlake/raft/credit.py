"""How many epochs may be taken at once, and how soon again: one more for each step of time, up to a limit.

Owns the numbers; who spends on what is for `leaps`. Invariant: in a time T no more is spent than `most` and one for each step
of T.
"""

from __future__ import annotations

from raftlake.raft.types import EPOCH_LEAP_MAX

#: By requests, which anybody can send: so many epochs, and one more each time. All of it comes back within ten seconds.
REQUEST_STEPS, REQUEST_STEP_MS = 40, 250
#: By requests, in a replica without a vote. It stays so little above its leader that the leader takes it up within seconds,
#: though nothing be left to the leader but what comes back; its own epochs come with the answers to its fetches.
OBSERVER_STEPS, OBSERVER_STEP_MS = 10, 10_000
#: By answers of voters that are no majority.
ANSWER_STEPS, ANSWER_STEP_MS = EPOCH_LEAP_MAX, 15
#: By candidacies of the replica itself.
OWN_STEPS, OWN_STEP_MS = 1_000, 500
#: Questions to those whose requests were refused.
QUESTIONS, QUESTION_MS = 2, 250


class Credit:
    """Full at first. A larger sum can be saved for."""

    __slots__ = ("_amount", "_earned_at_ms", "_limit", "_most", "_step_ms")

    def __init__(self, most: int, step_ms: int) -> None:
        self._most = self._limit = self._amount = most
        self._step_ms = step_ms
        self._earned_at_ms = 0

    def amount(self, now_ms: int) -> int:
        """What may be spent now."""
        earned = (now_ms - self._earned_at_ms) // self._step_ms
        if self._amount + earned >= self._limit:
            self._amount, self._earned_at_ms = self._limit, now_ms
        else:
            self._amount += earned
            self._earned_at_ms += earned * self._step_ms
        return self._amount

    def spend(self, sum_: int, now_ms: int) -> bool:
        """Spend `sum_`, or nothing where that is too much."""
        if sum_ > self.amount(now_ms):
            return False
        self._amount -= sum_
        self._limit = max(self._most, self._amount)
        return True

    def save_for(self, sum_: int, now_ms: int) -> None:
        """From now on until something is spent, as much may come together as `sum_`."""
        self.amount(now_ms)
        self._limit = max(self._most, sum_)

    def wait_ms(self, now_ms: int) -> int:
        """How long until there is something to spend."""
        return 0 if self.amount(now_ms) > 0 else self._earned_at_ms + self._step_ms - now_ms


class EpochCredit:
    """Of one replica of one group, since its start."""

    __slots__ = ("answers", "own", "questions", "requests", "requests_without_vote")

    def __init__(self) -> None:
        self.requests = Credit(REQUEST_STEPS, REQUEST_STEP_MS)
        self.requests_without_vote = Credit(OBSERVER_STEPS, OBSERVER_STEP_MS)
        self.answers = Credit(ANSWER_STEPS, ANSWER_STEP_MS)
        self.own = Credit(OWN_STEPS, OWN_STEP_MS)
        self.questions = Credit(QUESTIONS, QUESTION_MS)
