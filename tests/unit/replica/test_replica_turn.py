"""The turn alone on an engine: what is done in which order, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from enginekit import METADATA_GROUP, ORDERS, Ground
from raftlake.errors import DamagedData, DiskFull, InvariantViolation, StorageError
from raftlake.raft import actions as do
from raftlake.replica.aside.allowance import TURN_BYTES, Allowance
from raftlake.replica.disk.findings import Findings
from raftlake.replica.turn.turn import PASSES_MAX, Turn

BROKEN = DamagedData("batch 3 is not what was written", offset=3)
SERVICES = (
    "actions", "control", "disk", "fetch_server", "fetchers", "handover", "kv", "reads", "restarts", "syncer",
)  # fmt: skip


class Order:
    """A turn whose services note their calls in one list."""

    def __init__(self, ground: Ground, **given: Any) -> None:
        self.calls: list[str] = []
        self.allowance = Allowance()
        services: dict[str, Any] = {
            name: _noting(name, self.calls)
            for name in (
                "actions",
                "control",
                "disk",
                "fetch_server",
                "fetchers",
                "gate",
                "handover",
                "kv",
                "reads",
                "restarts",
                "syncer",
                "voter_changes",
            )
        }
        services["disk"].save = lambda dirty, states: (self.calls.append(f"disk.save {len(states)}"), dirty)[1]
        services["syncer"].start = lambda: bool(self.calls.append("syncer.start"))
        services["fetchers"].has_rounds = services["fetch_server"].has_answers = False
        services["handover"].holds = lambda partition: False
        for name, value in given.items():
            service, method = name.split("__")
            setattr(services[service], method, value)
        self.findings = Findings(ground.engine)
        self.turn = Turn(ground.engine, allowance=self.allowance, findings=self.findings, **services)


def _noting(name: str, calls: list[str]) -> Any:
    class Service:
        def __getattr__(self, method: str) -> Any:
            return lambda *given: calls.append(f"{name}.{method}")

    return Service()


def test_states_are_saved_before_anything_is_performed_and_the_sync_comes_last() -> None:
    ground = Ground()
    ground.host()
    ground.host(ORDERS)
    order = Order(ground)
    order.allowance.left = 0
    order.turn.run()
    performed = [call for call in order.calls if call.startswith("actions")]
    assert order.calls == [
        "restarts.repair_found",
        "disk.save 2",
        *performed,
        "voter_changes.meet_voters",
        "fetch_server.send_answers",
        "control.send_all",
        "fetchers.send_rounds",
        "syncer.start",
    ]
    assert len(performed) >= 3 and order.allowance.left == TURN_BYTES
    assert not ground.engine.has_marked


def test_damage_and_a_full_disk_end_the_actions_of_their_group_alone() -> None:
    ground = Ground()
    ground.host()
    ground.host(ORDERS)
    performed: list[Any] = []

    def perform(partition: Any, action: Any) -> None:
        performed.append(partition.group)
        if partition.group == METADATA_GROUP:
            raise error

    for error in (BROKEN, DiskFull("no space left")):
        for partition in ground.engine.partitions.values():
            partition.outbox[:] = [do.ReleaseFetchRounds()] * 2
            ground.engine.mark_dirty(partition)
        order = Order(ground, actions__perform=perform)
        order.turn.run()
        assert performed == [METADATA_GROUP, ORDERS, ORDERS] and ground.engine.fatal is None
        assert ("restarts.without_room" in order.calls) == isinstance(error, DiskFull)
        performed.clear()


def test_a_damaged_group_neither_performs_nor_appends_before_it_is_started_anew() -> None:
    """What was proposed in the turn that found the damage was appended behind a gap."""
    ground = Ground()
    damaged, whole = ground.lead(), ground.lead(ORDERS)
    order = Order(ground)
    performed: list[Any] = []
    admitted: list[Any] = []

    def perform(partition: Any, action: Any) -> None:
        performed.append(partition.group)
        if partition is damaged and not order.findings.has_found:
            for each in (damaged, whole):
                each.outbox.append(do.ReleaseFetchRounds())
                ground.engine.mark_dirty(each)
                each.admit = lambda *_given, each=each: admitted.append(each.group)  # type: ignore[method-assign]
                ground.engine.mark_appending(each)
            raise BROKEN

    order = Order(ground, actions__perform=perform)
    damaged.outbox[:] = [do.ReleaseFetchRounds()] * 2
    ground.engine.mark_dirty(damaged)
    order.turn.run()
    assert performed == [METADATA_GROUP, ORDERS] and admitted == [ORDERS]
    assert damaged.outbox == [do.ReleaseFetchRounds()], "it says that when it is started anew"
    assert order.findings.holds(METADATA_GROUP) and not order.findings.holds(ORDERS)


@pytest.mark.parametrize("error", [StorageError("the disk"), InvariantViolation("a bug")])
def test_an_error_ends_the_node(error: Exception) -> None:
    ground = Ground()
    ground.host()

    def fail(*given: object) -> None:
        raise error

    Order(ground, actions__perform=fail).turn.run()
    assert ground.engine.fatal is error
    again = Order(ground)
    again.turn.run()
    assert again.calls == [], "a node that has stopped takes no turns"


def test_a_turn_that_breeds_work_without_end_is_a_bug() -> None:
    ground = Ground()
    partition = ground.host()

    def breed(*given: object) -> None:
        partition.outbox.append(do.ReleaseFetchRounds())
        ground.engine.mark_dirty(partition)

    order = Order(ground, actions__perform=breed)
    order.turn.run()
    assert isinstance(ground.engine.fatal, InvariantViolation) and str(PASSES_MAX) in str(ground.engine.fatal)
