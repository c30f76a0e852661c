"""The arithmetic of majorities. Pure functions and a vote tally; knows neither roles nor messages.

Invariant: whatever is said to hold for a majority holds for at least `majority` distinct voters, so that any two answers
share a voter (Raft §5.2, §5.4).
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlake.raft.types import NodeId, VoterSet


def largest_reached_by(values: Iterable[int], majority: int) -> int:
    """The largest number that at least `majority` of `values` are equal to or above.

    With the voters' synced end offsets this is the offset that a majority holds; with the times of their last fetches it is the
    moment since when a majority has been heard of; with their causal clocks, how far a majority has confirmed us.
    """
    return sorted(values, reverse=True)[majority - 1]


class Tally:
    """The votes of one round. A voter's answer counts once and cannot be taken back."""

    __slots__ = ("_votes", "_voters")

    def __init__(self, voters: VoterSet) -> None:
        self._voters = voters
        self._votes: dict[NodeId, bool] = {}

    def record(self, voter: NodeId, *, granted: bool) -> bool:
        """Count an answer; False when it is from a stranger or was counted before."""
        if voter not in self._voters or voter in self._votes:
            return False
        self._votes[voter] = granted
        return True

    @property
    def is_won(self) -> bool:
        """A majority granted."""
        return len(self.granting) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        """So many refused that the rest is no majority."""
        refused = len(self._votes) - len(self.granting)
        return len(self._voters) - refused < self._voters.majority

    @property
    def has_refusal(self) -> bool:
        """Somebody refused."""
        return len(self._votes) > len(self.granting)

    @property
    def granting(self) -> tuple[NodeId, ...]:
        """Who granted, ascending."""
        return tuple(sorted(voter for voter, granted in self._votes.items() if granted))

    @property
    def unrecorded(self) -> tuple[NodeId, ...]:
        """Who has not answered yet, ascending."""
        return tuple(voter for voter in self._voters.ids if voter not in self._votes)
