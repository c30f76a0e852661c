"""Topics are keys: `/raftlake/topics/<name>` holds the id and the number of partitions. This module follows those keys and
keeps this node's groups equal to them, and proposes their creation, changes and deletion.

While the metadata log is replayed after a restart the keys pass through old states. A group directory that already
holds another incarnation of a topic (same name, other id) is therefore left alone: its own creation comes later in the
log.

What is put over a topic's key and means nothing never comes here (`reserved_rules`). Where no topic is known under a key, as in
a snapshot of an earlier release that took any value, no node hosts one. Data of that name stays on disk until the key is
deleted or describes another topic.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.history import Change, Compacted
from raftlake.kv.keys import TOPICS_PREFIX, topic_key
from raftlake.kv.strict_json import Refused
from raftlake.ports.peer_rpcs import GroupId, ReadOffsetResult
from raftlake.raft.events import CampaignRequested
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP, ClientContext
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.hosting.queue import HostingQueue
from raftlake.replica.hosting.topic_news import TopicChanges
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.room import why_too_many
from raftlake.replica.kv.service import KvService
from raftlake.replica.names import Names
from raftlake.replica.opaque import no_keys
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved import Topic, decode_topic, fault_of_name
from raftlake.replica.reserved_rules import PARTITIONS_MAX, topic_under
from raftlake.wire.ids import id_to_text

#: Why a node cannot say that a topic does not exist.
NO_LEADER_YET = "this node hears of no leader of the quorum"
NOTHING_CHANGED = "the metadata log has no leader that could be reached; nothing was changed"
FIRST_ELECTION_DELAY_MS = 200
#: Longer where a topic has many groups: it takes the nodes different times to open them.
FIRST_ELECTION_DELAY_MS_PER_GROUP = 2

CreateDone = Callable[["Topic | None", ErrorCode, str], None]


def require_name(name: str) -> None:
    """Kafka's rule for topic names; RequestRejected(INVALID_TOPIC_EXCEPTION) otherwise."""
    fault = fault_of_name(name)
    if fault is not None:
        raise RequestRejected(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)


class TopicRegistry:
    def __init__(
        self, engine: Engine, *, names: Names, quorum: Quorum, disk: DiskWatch, kv: KvService, hosting: Hosting
    ) -> None:
        self._engine = engine
        self._names = names
        self._quorum = quorum
        self._kv = kv
        self._hosting = hosting
        #: What the keys said when they were followed last.
        self._followed: dict[str, Topic] = {}
        #: Names whose keys mean nothing. There may be data of topics that stood there before.
        self._spoilt: dict[str, None] = {}
        self._seen_version = 0
        self._is_current = False
        self.changes = TopicChanges(engine)
        self._queue = HostingQueue(engine, disk, hosting, names=names, is_wanted=self._has, open_group=self._open)
        kv.listeners.append(self._on_applied)

    def _has(self, group: GroupId) -> bool:
        topic = self._names.topic(group.topic)
        return topic is not None and topic.topic_id == group.topic_id

    @property
    def is_current(self) -> bool:
        """Whether every topic that existed when this node started is known here."""
        return self._is_current or self._engine.config.is_opaque

    @property
    def may_miss_some(self) -> bool:
        """Whether a topic that is not known here may exist all the same: no leader has told yet what there is, or tells no
        longer."""
        return not (self.is_current and self._quorum.is_ready())

    # --- following the keys ---

    def _has_caught_up(self, applied_offset: int) -> bool:
        """Whether all that was seen to be committed, here or elsewhere, has been applied once since the start. Until
        then a topic may be one that this node deleted in its last life, and with it the votes that it cast there."""
        if not self._is_current:
            self._is_current = self._engine.partitions[METADATA_GROUP].core.has_caught_up(Offset(applied_offset))
        return self._is_current

    def _on_applied(self, applied_offset: int) -> None:
        was_current = self._is_current
        if not self._has_caught_up(applied_offset):
            return
        try:
            while changes := self._kv.machine.changes_since(TOPICS_PREFIX, self._seen_version):
                for change in changes:
                    self._seen_version = change.version
                    self._on_change(change, is_news=was_current)
        except Compacted:
            self._follow_all()
        self._seen_version = max(self._seen_version, applied_offset - 1)

    def _follow_all(self) -> None:
        """Too many changes at once to have kept each: compare with all keys."""
        entries, _ = self._kv.machine.list(TOPICS_PREFIX, None, 1 << 31)
        topics = self._kv.state.topics
        names = [key.removeprefix(TOPICS_PREFIX) for key, _ in entries]
        self._spoilt = {name: None for name in names if name not in topics}
        alive = {(topic.name, topic.topic_id) for topic in topics.values()}
        # Of what was found on disk the end may be among the changes that are no longer told.
        over = self._hosting.discard(lambda name, topic_id: (name, topic_id) not in alive)
        self._queue.delete(group for group in over if group.topic not in self._spoilt)
        for name, topic in list(self._followed.items()):
            if (name, topic.topic_id) not in alive:
                self._end(name)
        for name in names:
            if name in topics:
                self._begin(topics[name])

    def _on_change(self, change: Change, *, is_news: bool) -> None:
        name, value = change.key.removeprefix(TOPICS_PREFIX), change.value
        topic = None if value is None else topic_under(name, value)
        self._tell_of(change, self._followed.get(name), topic, is_news=is_news)
        was_spoilt, is_spoilt = name in self._spoilt, topic is None and value is not None
        if is_spoilt:
            self._spoilt[name] = None
        elif was_spoilt:
            del self._spoilt[name]
        if name in self._followed and (topic is None or topic.topic_id != self._followed[name].topic_id):
            self._end(name)
        if was_spoilt != is_spoilt:
            newest = self._kv.state.topics.get(name)
            kept = None if newest is None else newest.topic_id
            over = self._hosting.discard(lambda other, topic_id: other == name and topic_id != kept)
            self._queue.delete([] if is_spoilt else over)
        if topic is not None:
            self._begin(topic)

    def _tell_of(self, change: Change, before: Topic | None, after: Topic | None, *, is_news: bool) -> None:
        told = partial(self.changes.applied, version=change.version, is_current=is_news)
        is_same = before is not None and after is not None and before.topic_id == after.topic_id
        if before is not None and not is_same and (after is not None or change.value is None):
            told(before, is_created=False)
        if after is not None and not is_same:
            told(after, is_created=True)

    def _begin(self, topic: Topic) -> None:
        self._followed[topic.name] = topic
        self._host(topic)

    def _end(self, name: str) -> None:
        """No such topic is there any more. Its data is deleted, unless its key was spoilt."""
        topic = self._followed.pop(name)
        self._names.remove(topic)
        doomed = self._hosting.close(topic.groups())
        self._queue.delete([] if name in self._spoilt else doomed)

    def _host(self, topic: Topic) -> None:
        self._names.add(topic)
        self._hosting.obey(topic)
        if topic.voters is not None or topic.grown:
            for group in topic.each_group():
                voters = topic.voters_of(group.partition)
                if voters is not None:
                    self._hosting.begin_with(group, voters)
        self._queue.open(topic.each_group())

    def _open(self, group: GroupId) -> None:
        """Host a new group. Its first leader should be the voter that the group prefers, so that leaders are spread: that one
        campaigns at once, the others one after the other if it does not."""
        topic = self._names.by_id(group.topic_id)
        assert topic is not None
        initial = topic.voters_of(group.partition)
        voters = list((self._quorum.latest if initial is None else initial).ids)
        preferred = zlib.crc32(group.topic.encode()) + group.partition
        me = self._engine.config.node_id
        # A node that was told addresses only may not know any voter yet.
        rank = (voters.index(me) - preferred) % len(voters) if me in voters else len(voters)
        delay_ms = rank * max(FIRST_ELECTION_DELAY_MS, FIRST_ELECTION_DELAY_MS_PER_GROUP * topic.partitions)
        opened = self._hosting.open(group, election_delay_ms=delay_ms, initial=initial)
        if opened and rank == 0 and voters:
            self._engine.step(self._engine.partitions[group], CampaignRequested())

    # --- changing them ---

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        done: CreateDone,
        client: ClientContext | None = None,
    ) -> None:
        """Create a topic; `done(topic, error, message)` once it is committed and this node knows it. `client` is who asked."""
        try:
            if self._engine.config.is_opaque:
                raise RequestRejected(ErrorCode.POLICY_VIOLATION, no_keys(self._engine.config))
            require_name(name)
            if partitions < 1:
                raise RequestRejected(ErrorCode.INVALID_PARTITIONS, f"partitions must be at least 1, got {partitions}")
            self.require_room(partitions)
        except RequestRejected as rejected:
            done(None, rejected.code, rejected.message)
            return

        def proven(result: ReadOffsetResult) -> None:
            """The voters that the topic begins with are written into its key: a node that lags, or has just started, may know
            older ones, or none."""
            if result.error is ErrorCode.NONE:
                self._propose(Topic(name, self._new_id(), partitions, configs, self._quorum.committed), done, client)
            else:
                done(None, ErrorCode.NOT_CONTROLLER, NOTHING_CHANGED)

        self._kv.read(True, proven)

    def _propose(self, topic: Topic, done: CreateDone, client: ClientContext | None) -> None:
        name, key, value = topic.name, topic_key(topic.name), topic.encode()
        described = decode_topic(name, value, PARTITIONS_MAX)
        if isinstance(described, Refused):
            # The voters come from the quorum's log, where more may stand than a key can hold.
            done(None, ErrorCode.POLICY_VIOLATION, f"the topic cannot be described: {described.reason}")
            return
        txn = Txn(compares=(Compare(key, 0),), ops=(Put(key, value),))

        def on_outcome(outcome: ProposeOutcome) -> None:
            self.changes.over(topic, is_created=True, is_done=_is_carried_out(outcome))
            if outcome.status is ProposeStatus.DONE and outcome.result is not None:
                if not outcome.result.succeeded:
                    done(None, *self.why_taken(name))
                elif outcome.result.ignored:
                    done(None, ErrorCode.POLICY_VIOLATION, f"the topic was not created: {outcome.result.ignored[0][1]}")
                else:
                    done(topic, ErrorCode.NONE, "")
            else:
                done(None, *_explain(outcome))

        self.changes.proposed(topic, client, is_created=True)
        self._kv.propose_anywhere(txn, on_outcome)

    def grow(self, name: str, count: int, done: CreateDone) -> None:
        """Let a topic have `count` partitions; `done(topic, error, message)` once it is committed and this node knows it."""

        def grown(topic: Topic) -> Topic:
            error, message = self.refusal_of_growth(name, count)
            if error is not ErrorCode.NONE:
                raise RequestRejected(error, message)
            return topic.with_partitions(count, self._quorum.committed)

        self.change(name, grown, done)

    def change(self, name: str, edit: Callable[[Topic], Topic], done: CreateDone) -> None:
        """Put what `edit` makes of a topic in its place; `done(topic, error, message)` once it is committed and this node knows
        it. `edit` raises RequestRejected, and is called again where the topic changed meanwhile."""

        def proven(result: ReadOffsetResult) -> None:
            if result.error is ErrorCode.NONE:
                self._change_now(name, edit, done)
            else:
                done(None, ErrorCode.NOT_CONTROLLER, NOTHING_CHANGED)

        self._kv.read(True, proven)

    def require(self, name: str) -> Topic:
        """The topic of that name, as this node knows it. Raises RequestRejected."""
        if self._engine.config.is_opaque:
            raise RequestRejected(ErrorCode.POLICY_VIOLATION, no_keys(self._engine.config))
        topic = self._kv.state.topics.get(name)
        if topic is None and self.may_miss_some:
            raise RequestRejected(ErrorCode.NOT_CONTROLLER, f"{NO_LEADER_YET}; nothing was changed")
        if topic is None:
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        return topic

    def refusal_of_growth(self, name: str, count: int) -> tuple[ErrorCode, str]:
        """Why a topic, as this node knows it, cannot have so many partitions; (NONE, "") where it can. In Kafka's words where
        Kafka refuses too."""
        try:
            has = self.require(name).partitions
            if count == has:
                return ErrorCode.INVALID_PARTITIONS, f"Topic already has {has} partition(s)."
            if count < has:
                told = f"The topic {name} currently has {has} partition(s); {count} would not be an increase."
                return ErrorCode.INVALID_PARTITIONS, told
            self.require_room(count - has)
        except RequestRejected as rejected:
            return rejected.code, rejected.message
        return ErrorCode.NONE, ""

    def require_room(self, more: int) -> None:
        """RequestRejected(INVALID_PARTITIONS) where so many partitions more are too many for all topics together. What is being
        created elsewhere is for the leader to count (`KvRoom`)."""
        limit = self._engine.config.partitions_max
        if self._kv.state.partition_count + more > limit:
            raise RequestRejected(ErrorCode.INVALID_PARTITIONS, why_too_many(more, limit))

    def _change_now(self, name: str, edit: Callable[[Topic], Topic], done: CreateDone) -> None:
        """Under the condition that the topic is as it is known here. Where it changed meanwhile, look again."""
        try:
            before = self.require(name)
            topic = edit(before)
        except RequestRejected as rejected:
            done(None, rejected.code, rejected.message)
            return
        if topic == before:
            done(topic, ErrorCode.NONE, "")
            return
        key = topic_key(name)
        described = decode_topic(name, topic.encode(), PARTITIONS_MAX)
        if isinstance(described, Refused):
            done(None, ErrorCode.POLICY_VIOLATION, f"the topic cannot be described: {described.reason}")
            return
        txn = Txn(compares=(Compare(key, self._key_version(name)),), ops=(Put(key, topic.encode()),))

        def on_outcome(outcome: ProposeOutcome) -> None:
            if outcome.status is not ProposeStatus.DONE or outcome.result is None:
                done(None, *_explain(outcome))
            elif not outcome.result.succeeded:
                # Each time somebody else has changed the topic, so this ends.
                self.change(name, edit, done)
            elif outcome.result.ignored:
                done(None, ErrorCode.POLICY_VIOLATION, f"the topic did not change: {outcome.result.ignored[0][1]}")
            else:
                done(topic, ErrorCode.NONE, "")

        self._kv.propose_anywhere(txn, on_outcome)

    def is_spoilt(self, name: str) -> bool:
        """Whether something stands under the key of this name that describes no topic."""
        return name not in self._kv.state.topics and self._key_version(name) != ABSENT

    def why_taken(self, name: str) -> tuple[ErrorCode, str]:
        """Why a topic of this name cannot be created."""
        if not self.is_spoilt(name):
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists"
        return ErrorCode.POLICY_VIOLATION, (
            f"the key {topic_key(name)} holds a value that describes no topic: `raftlake topics delete {name}` deletes "
            "the key, and what data there is under that name; then create the topic"
        )

    def _key_version(self, name: str) -> int:
        entry = self._kv.machine.get(topic_key(name))
        return ABSENT if entry is None else entry.version

    def delete(self, topic: Topic, done: CreateDone, client: ClientContext | None = None) -> None:
        """Delete a topic and its data on every node. `client` is who asked."""
        if topic is self._names.own or self._key_version(topic.name) == ABSENT:
            done(None, ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the quorum's own log, and cannot be deleted")
        else:
            self._delete_key(topic.name, topic, done, client)

    def delete_spoilt(self, name: str, done: CreateDone) -> None:
        """Delete a key that describes no topic (`is_spoilt`), and the data of one that it described before."""
        self._delete_key(name, None, done, None)

    def _delete_key(self, name: str, topic: Topic | None, done: CreateDone, client: ClientContext | None) -> None:
        key = topic_key(name)
        txn = Txn(compares=(Compare(key, self._key_version(name)),), ops=(Delete(key),))

        def on_outcome(outcome: ProposeOutcome) -> None:
            if topic is not None:
                self.changes.over(topic, is_created=False, is_done=_is_carried_out(outcome))
            if outcome.status is not ProposeStatus.DONE or outcome.result is None:
                done(None, *_explain(outcome))
            elif outcome.result.succeeded:
                done(topic, ErrorCode.NONE, "")
            elif self._still_stands(name, topic):
                # Each time somebody else has changed it, so this ends.
                self._delete_key(name, topic, done, client)
            else:
                why = f"topic {name!r} was deleted or replaced meanwhile"
                done(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)

        if topic is not None:
            self.changes.proposed(topic, client, is_created=False)
        self._kv.propose_anywhere(txn, on_outcome)

    def _still_stands(self, name: str, topic: Topic | None) -> bool:
        """Whether the key holds what was to be deleted, be it with other configs or another fault."""
        if topic is None:
            return self.is_spoilt(name)
        standing = self._kv.state.topics.get(name)
        return standing is not None and standing.topic_id == topic.topic_id

    def _new_id(self) -> bytes:
        while True:
            topic_id = self._engine.rng.randrange(1 << 128).to_bytes(16, "big")
            # Kafka prints ids in base64 and refuses those that begin with a dash: they look like an option.
            if self._names.by_id(topic_id) is None and not id_to_text(topic_id).startswith("-") and any(topic_id[:8]):
                return topic_id


def _is_carried_out(outcome: ProposeOutcome) -> bool:
    result = outcome.result
    return outcome.status is ProposeStatus.DONE and result is not None and result.succeeded and not result.ignored


def _explain(outcome: ProposeOutcome) -> tuple[ErrorCode, str]:
    if outcome.status is ProposeStatus.UNKNOWN:
        return ErrorCode.REQUEST_TIMED_OUT, "the change was proposed and its outcome is unknown; look before trying again"
    if outcome.reason:
        return outcome.error, outcome.reason
    return ErrorCode.NOT_CONTROLLER, NOTHING_CHANGED
