"""A client that creates a topic, appends to it, deletes it and creates it anew, under one name and always another id.

No check looks at what it appends: the topic may go at any moment. It is there for what comes with topics: groups that open and
close on every node while the nodes crash, replay the metadata log and elect leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, SCRATCH, Client, Shared
from raftlake.sim.clients.calls import CallFailure
from raftlake.sim.clients.messages import ask_create_topic, ask_delete_topic, ask_produce, created_topic_id, deletion_error
from raftlake.sim.clock import US_PER_MS
from raftlake.wire.batches import Record, build_batch

#: After so many appends in a row the topic is deleted: a client that only ever appended would be called stuck.
APPENDS_MAX = 3


def create_topic(
    client: Client, name: str, partitions: int, done: Callable[[Any], None], configs: Mapping[str, str] | None = None
) -> None:
    """Ask any node. A topic begins with the voters that its maker knew: while one may still come, no disk is replaced."""
    operations, scheduler = client.shared.operations, client.shared.scheduler

    def on_answer(answer: Any) -> None:
        is_created = not isinstance(answer, CallFailure) and created_topic_id(answer) is not None
        operations.answered(client.name, scheduler.now_us, is_known=is_created)
        done(answer)

    operations.asked(client.name, scheduler.now_us + CALL_TIMEOUT_MS * US_PER_MS)
    client.shared.calls.call(client.any_node(), ask_create_topic(name, partitions, configs or {}), on_answer, CALL_TIMEOUT_MS)


class TopicChurner(Client):
    """Creates and deletes in turn; an unknown outcome counts as done, and the next attempt shows what it was."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._exists = False
        self._appends = 0

    def step(self) -> None:
        if self._exists and (self.rng.randrange(3) == 0 or self._appends == APPENDS_MAX):
            self._appends = 0
            ask, done = ask_delete_topic(SCRATCH), self._on_deleted
        elif self._exists:
            self._appends += 1
            batch = build_batch([Record(value=self.name.encode())], timestamp_ms=1)
            ask, done = ask_produce(SCRATCH, 0, batch, CALL_TIMEOUT_MS), self._on_produced
        else:
            create_topic(self, SCRATCH, 1, self._on_created)
            return
        self.shared.calls.call(self.any_node(), ask, done, CALL_TIMEOUT_MS)

    def _on_created(self, answer: Any) -> None:
        self._exists = True
        if isinstance(answer, CallFailure) or created_topic_id(answer) is None:
            self.give_up()
        else:
            self.say(f"created {SCRATCH}")
            self.succeed()

    def _on_produced(self, answer: Any) -> None:
        # Most nodes do not lead it; what counts is that the one that does can lose it while it has the request.
        self.give_up()

    def _on_deleted(self, answer: Any) -> None:
        error = None if isinstance(answer, CallFailure) else deletion_error(answer)
        if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._exists = False
            self.say(f"deleted {SCRATCH}")
            self.succeed()
        else:
            self.give_up()
