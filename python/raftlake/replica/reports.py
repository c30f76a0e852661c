"""What the cores report of themselves: roles, for all who listen, and epochs that they did not take in, for people.

Owns the alarms about epochs. A refused epoch is logged the first time for each group, and then each time their number has
doubled; its alarm ends when the group has reached that epoch, or has refused none for `REFUSAL_ALARM_MS`. Epochs that come to
an end are an error, and that alarm stays. No alarm advises to give a voter's data up: others may need it for what they have
promised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRefusedEpoch, ReportRole
from raftlake.raft.types import EPOCH_LEAP_MAX, EPOCH_MAX, Epoch
from raftlake.replica.engine import Engine

logger = logging.getLogger("raftlake.epochs")

#: Groups whose alarms are told.
ALARMS_MAX = 100
#: What a forger left behind is no news for longer; one that goes on renews its alarm.
REFUSAL_ALARM_MS = 600_000

WHERE_REFUSED = (
    "Somebody forges messages, or this node was away while the others went on; then it catches up by itself once it reaches a "
    "majority of the voters. Keep its data, and see who can reach the listener that peers use"
)
WHERE_NEARLY_OVER = (
    "Close the listener that peers use to the sender of forged messages. While there is a leader, stop what writes, and wait "
    "until all nodes have everything (`raftlake describe --replication`). Then stop the nodes and run `raftlake recover` on "
    "one: its logs have to reach as far as those of the others. Keep the data of the others until they have joined it again"
)


@dataclass(slots=True)
class _Refusals:
    """The epochs that a group refused: how many since the start, and the alarm about the last ones."""

    count: int = 0
    #: The highest of them, and when the last one came. The alarm is over (None) once the group has reached that epoch.
    awaited: Epoch = Epoch(-1)
    last_ms: int = 0
    alarm: str | None = None

    def is_over(self, now_ms: int) -> bool:
        return self.alarm is None or now_ms - self.last_ms >= REFUSAL_ALARM_MS


class Reports:
    """`alarms` says by group what is wrong with its epochs; `refused_epochs` counts all that were refused since the start."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.role_listeners: list[Callable[[GroupId, ReportRole], None]] = []
        self.refused_epochs = 0
        self._refusals: dict[GroupId, _Refusals] = {}
        self._nearly_over: dict[GroupId, str] = {}

    @property
    def alarms(self) -> dict[GroupId, str]:
        """At most `ALARMS_MAX`, those of groups whose epochs come to an end first."""
        now_ms = self._engine.clock.now_ms()
        found = dict(self._nearly_over)
        for group, refusals in self._refusals.items():
            if refusals.alarm is not None and not refusals.is_over(now_ms):
                found.setdefault(group, refusals.alarm)
        return {group: found[group] for group in list(found)[:ALARMS_MAX]}

    def forget(self, group: GroupId) -> None:
        """The group was deleted, and its alarms with it."""
        self._refusals.pop(group, None)
        self._nearly_over.pop(group, None)

    def role(self, group: GroupId, report: ReportRole) -> None:
        refusals = self._refusals.get(group)
        if refusals is not None and report.epoch >= refusals.awaited:
            refusals.alarm = None
        if report.epoch > EPOCH_MAX - EPOCH_LEAP_MAX:
            self._end(group, report.epoch)
        for listener in self.role_listeners:
            listener(group, report)

    def _end(self, group: GroupId, epoch: Epoch) -> None:
        told = f"epoch {epoch} is near the last one, {EPOCH_MAX}: then no leader can be elected any more. {WHERE_NEARLY_OVER}"
        if self._nearly_over.get(group) != told:
            self._nearly_over[group] = told
            logger.error("%s: %s", group, told)

    def refused_epoch(self, group: GroupId, report: ReportRefusedEpoch) -> None:
        now_ms = self._engine.clock.now_ms()
        self.refused_epochs += 1
        refusals = self._refusals.setdefault(group, _Refusals())
        if refusals.is_over(now_ms):
            refusals.alarm, refusals.awaited = None, Epoch(-1)
        refusals.count += 1
        refusals.awaited = max(report.epoch, refusals.awaited)
        refusals.last_ms = now_ms
        is_logged = refusals.count & (refusals.count - 1) == 0
        if is_logged or refusals.alarm is None:
            told = f"refused epoch {report.epoch} of node {report.source}: it leaps from {report.own_epoch}"
            refusals.alarm = f"{told} ({refusals.count} refused so far). {WHERE_REFUSED}"
        if is_logged:
            logger.warning("%s: %s", group, refusals.alarm)
