"""What the runs got to see, counted: a simulator that never reaches a state proves nothing about it.

Owns names and counts, nothing else; the machines and clients call it. Counting changes nothing in a run.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import ControlReply, FetchReply, GroupId, PeerReply, ReadOffsetReply
from raftlake.raft.actions import ReportRole
from raftlake.raft.messages import FetchResponse


class Coverage:
    """One per run."""

    def __init__(self) -> None:
        #: `kind: what` -> how often.
        self.counts: dict[str, int] = {}
        self._epochs: dict[GroupId, int] = {}
        self._rises = 0

    def note(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times

    def role(self, group: GroupId, before: str, action: ReportRole) -> None:
        """A replica reported its role."""
        if before != action.role:
            self.note(f"role {before} -> {action.role}")
        if action.role == "Resigned" and before == "Leader":
            self.note(f"resigned ({action.reason})")
        if action.epoch > self._epochs.get(group, 0):
            # Who forges one passes a thousand over.
            self._epochs[group] = action.epoch
            self._rises += 1

    def answer(self, answer: PeerReply) -> None:
        """A node answered another one."""
        if isinstance(answer, FetchReply | ControlReply):
            if answer.error:
                self.note(f"error {answer.error.name}")
            for message in answer.messages:
                body = message.body
                if isinstance(body, FetchResponse):
                    if body.diverging is not None:
                        self.note("divergence told")
                    if body.snapshot_id is not None:
                        self.note("snapshot id told")
                if body.error:  # type: ignore[union-attr]
                    self.note(f"error {body.error.name}")  # type: ignore[union-attr]
        elif isinstance(answer, ReadOffsetReply):
            for result in answer.results:
                if result.error:
                    self.note(f"error {result.error.name}")

    def finish(self) -> dict[str, int]:
        """The counts, with the epochs that the groups went through, by name."""
        return dict(sorted({**self.counts, "epochs": self._rises}.items()))
