"""What the client knows about the cluster: addresses of nodes, topics, and who leads which partition.

Owns the metadata cache and finds some node that answers. A cached leader may be wrong at any time: a caller that is told so
asks for a refresh, or brings the newer leader that the answer named. The invariant: for one topic id, the leader epoch of a
partition in the cache never goes back.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic

from raftlake.client import protocol
from raftlake.client.connection import Connection
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import Disconnected, NoReachableNode
from raftlake.client.pool import ConnectionPool
from raftlake.client.shared_work import SharedWork
from raftlake.client.types import Address, ClientConfig, PartitionDescription, TopicDescription
from raftlake.errors import ErrorCode, RequestRejected, code_of, unknown_outcome
from raftlake.wire.api import ApiKey

#: Topics by name; None: all of them.
Names: TypeAlias = tuple[str, ...] | None


@dataclass(slots=True)
class PartitionLeader:
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: dict[int, PartitionLeader]
    #: Seconds on the loop's clock.
    learned_at: float
    learned_from: Address

    def require_partition(self, partition: int) -> PartitionLeader:
        leader = self.partitions.get(partition)
        if leader is None:
            raise RequestRejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {self.name!r} has {len(self.partitions)} partitions, not {partition}",
            )
        return leader

    def lacks(self, partitions: Iterable[int], topic_id: bytes | None) -> RequestRejected | None:
        """What to say when this is not the topic of that id (None: of any), or does not have all of the partitions."""
        if topic_id is not None and topic_id != self.topic_id:
            told = f"topic {self.name!r} was deleted and created again: begin anew, with offsets of the new one"
            return RequestRejected(ErrorCode.UNKNOWN_TOPIC_ID, told)
        try:
            for partition in partitions:
                self.require_partition(partition)
        except RequestRejected as lacking:
            return lacking
        return None

    def describe(self) -> TopicDescription:
        return TopicDescription(
            name=self.name,
            topic_id=self.topic_id,
            partitions=tuple(
                PartitionDescription(
                    partition=partition,
                    leader_id=leader.leader_id,
                    leader_epoch=leader.leader_epoch,
                    replicas=leader.replicas,
                )
                for partition, leader in sorted(self.partitions.items())
            ),
        )


class Cluster:
    def __init__(self, config: ClientConfig, pool: ConnectionPool) -> None:
        self.config = config
        self.pool = pool
        self.cluster_id: str | None = None
        self.nodes: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._refreshing: SharedWork[tuple[Names, Address | None], MetadataResponse] = SharedWork("metadata")
        self._turns = itertools.count()
        #: Whether a node has ever answered this client: an outage is waited for, a wrong address is not.
        self._was_reached = False
        #: Nodes that could not tell what exists when they were last asked, for want of a leader.
        self._leaderless: dict[Address, None] = {}
        #: By address: why a node gave no answer when it was last asked.
        self._silent: dict[str, str] = {}

    def now(self) -> float:
        """Seconds on the loop's clock."""
        return asyncio.get_running_loop().time()

    # --- asking some node --------------------------------------------------------------------------------------------

    def candidates(self, avoid: Address | None = None) -> list[Address]:
        """Every known address in turn: those with an open connection first, those without a leader late, and `avoid` last."""
        known = list(dict.fromkeys([*self.nodes.values(), *self.config.bootstrap]))
        first = next(self._turns) % len(known)
        rotated = known[first:] + known[:first]

        def rank(address: Address) -> tuple[bool, bool, bool]:
            return address == avoid, address in self._leaderless, self.pool.get_open(address) is None

        return sorted(rotated, key=rank)

    async def ask_any(
        self,
        api_key: ApiKey,
        version: int,
        message: object,
        deadline: Deadline,
        *,
        changes: bool = False,
        before_repeating: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[Any, bool]:
        """The answer of the first node that gives one, and whether an earlier try may have been received. See `_ask_some`."""
        answer, was_sent, _ = await self._ask_some(
            api_key, version, message, deadline, changes=changes, before_repeating=before_repeating
        )
        return answer, was_sent

    async def _ask_some(
        self,
        api_key: ApiKey,
        version: int,
        message: object,
        deadline: Deadline,
        *,
        changes: bool = False,
        before_repeating: Callable[[], Awaitable[None]] | None = None,
        avoid: Address | None = None,
    ) -> tuple[Any, bool, Address]:
        """The answer of the first node that gives one, whether an earlier try may have been received, and who answered.

        Raises NoReachableNode when none answers in time; for a request that changes something, UnknownOutcome if it was sent.
        `before_repeating` is awaited before each try behind one that may have been received, and may raise.
        """
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_ms_max)
        errors: dict[str, str] = {}
        # Nobody ends with the time of an operation that began before the outage, and shares this request.
        began_at = self.now()
        was_sent = False
        # What only asks goes to another node soon, in case this one is paused; each round gives the nodes more time.
        patience_ms = self.config.attempt_timeout_ms if changes else self.config.stall_check_ms
        # To connect asks for nothing yet.
        connect_patience_ms: float = self.config.stall_check_ms
        while True:
            for address in self.candidates(avoid):
                try:
                    connection = await self._connect(address, connect_patience_ms)
                    if was_sent and before_repeating is not None:
                        await before_repeating()
                    answer = await self.request(connection, api_key, version, message, deadline, patience_ms)
                    self._was_reached = True
                    self._silent.pop(str(address), None)
                    return answer, was_sent, address
                except Disconnected as error:
                    errors[error.address] = self._silent[error.address] = error.reason
                    self._leaderless.pop(address, None)
                    was_sent = was_sent or error.sent
                if deadline.is_over():
                    break
            elapsed_ms = (self.now() - began_at) * 1000
            if deadline.is_over() or elapsed_ms > self.config.unreachable_ms(self._was_reached):
                if was_sent and changes:
                    told = f"{api_key.name} was sent, and no answer came within {deadline.elapsed_ms():.0f} ms"
                    raise unknown_outcome(told, "look whether it was, then decide")
                raise NoReachableNode([str(address) for address in self.config.bootstrap], errors)
            patience_ms *= 2
            connect_patience_ms *= 2
            await backoff.pause(deadline)

    async def _connect(self, address: Address, patience_ms: float) -> Connection:
        """The shared connection; Disconnected also when it takes long: a paused node's system takes connections, and no
        answer comes on them. It goes on being opened meanwhile."""
        try:
            async with asyncio.timeout(patience_ms / 1000):
                return await self.pool.get(address)
        except TimeoutError as error:
            raise Disconnected(str(address), f"no connection within {patience_ms:.0f} ms", sent=False) from error

    async def request(
        self,
        connection: Connection,
        api_key: ApiKey,
        version: int,
        message: object,
        deadline: Deadline,
        patience_ms: float = math.inf,
    ) -> Any:
        timeout_ms = min(patience_ms, self.config.attempt_ms(deadline.remaining_ms()))
        return await connection.request(api_key, version, message, timeout_ms)

    # --- metadata ----------------------------------------------------------------------------------------------------

    async def topic(self, name: str, deadline: Deadline) -> Topic:
        """From the cache, or asked for; RequestRejected(UNKNOWN_TOPIC_OR_PARTITION) when no node knows it within the grace."""
        return self._cached(name) or await self.refresh_topic(name, deadline)

    def _cached(self, name: str) -> Topic | None:
        """As it was learned not too long ago."""
        cached = self._topics.get(name)
        is_young = cached is not None and self.now() - cached.learned_at < self.config.metadata_age_ms_max / 1000
        return cached if is_young else None

    async def topic_id(self, name: str, deadline: Deadline) -> bytes | None:
        """That of the topic which has the name, from the cache, or as one node that hears of a leader knows it. None where it
        knows no such topic."""
        try:
            topic = self._cached(name) or (await self.topics(deadline, (name,))).get(name)
        except RequestRejected as refused:
            if refused.code is not ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise
            return None
        return None if topic is None else topic.topic_id

    async def topic_with(
        self,
        name: str,
        partitions: Iterable[int],
        deadline: Deadline,
        *,
        topic_id: bytes | None = None,
        is_retry: bool = False,
    ) -> Topic:
        """As `topic` (a retry: as `refresh_topic`), with these partitions. Until nodes were asked for the grace, a topic
        without one of them, or of another id, may be one that was deleted since: what is cached is old, and nodes lag behind
        one another."""
        wanted = tuple(partitions)
        topic = await (self.refresh_topic if is_retry else self.topic)(name, deadline)
        if topic.lacks(wanted, topic_id) is None:
            return topic
        asked_for = Deadline(min(self.config.unknown_topic_grace_ms, deadline.remaining_ms()))
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_ms_max)
        while True:
            topic = await self.refresh_topic(name, deadline, avoid=topic.learned_from)
            if (lacking := topic.lacks(wanted, topic_id)) is None:
                return topic
            if asked_for.is_over():
                raise lacking
            await backoff.pause(deadline)

    def forget_topic(self, name: str) -> None:
        self._topics.pop(name, None)

    async def refresh_topic(self, name: str, deadline: Deadline, *, avoid: Address | None = None) -> Topic:
        """Asked for anew, of any node, of `avoid` only when no other one answers. A node without a leader cannot say that a
        topic does not exist: RequestRejected(LEADER_NOT_AVAILABLE) when none has one until the time is over."""
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_ms_max)
        asked_for = Deadline(min(self.config.unknown_topic_grace_ms, deadline.remaining_ms()))
        while True:
            answer = await self._refresh((name,), deadline, avoid)
            if any(_is_unsettled(described) for described in answer.topics):
                if deadline.is_over():
                    raise _leaderless((name,))
            elif (topic := self._topics.get(name)) is not None:
                return topic
            elif asked_for.is_over():
                raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
            await backoff.pause(deadline)

    async def topics(self, deadline: Deadline, asked: Names = None) -> Mapping[str, Topic]:
        """Those of `asked` that exist, or every topic but the quorum's own log (None); asked for anew, of a node that hears of
        a leader."""
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_ms_max)
        while _is_at_a_loss(answer := await self._refresh(asked, deadline)):
            if deadline.is_over():
                raise _leaderless(asked)
            await backoff.pause(deadline)
        names = [str(topic.name) for topic in answer.topics if topic.name is not None and topic.error_code == 0]
        return {name: self._topics[name] for name in sorted(names) if name in self._topics}

    async def _refresh(self, names: Names, deadline: Deadline, avoid: Address | None = None) -> MetadataResponse:
        """Ask some node about some topics or all (None). Callers that ask the same at the same time share one request."""
        try:
            return await self._refreshing.result((names, avoid), lambda: self._ask_metadata(names, deadline, avoid), deadline)
        except TimeoutError:
            if self._leaderless:
                raise _leaderless(names) from None
            raise NoReachableNode([str(address) for address in self.config.bootstrap], self._silent) from None

    async def _ask_metadata(self, names: Names, deadline: Deadline, avoid: Address | None) -> MetadataResponse:
        request = protocol.metadata_request(names)
        answer: MetadataResponse
        try:
            answer, _, address = await self._ask_some(
                ApiKey.METADATA, protocol.METADATA_VERSION, request, deadline, avoid=avoid
            )
        except NoReachableNode as error:
            if not self._leaderless:
                raise
            # Some do answer; it was another one's turn when the time was over.
            raise _leaderless(names) from error
        if _is_at_a_loss(answer):
            self._leaderless[address] = None
        else:
            self._leaderless.pop(address, None)
        self._learn(answer, address)
        return answer

    def _learn(self, answer: MetadataResponse, address: Address) -> None:
        self.cluster_id = answer.cluster_id
        if answer.brokers:
            self.nodes = {int(broker.node_id): Address(broker.host, int(broker.port)) for broker in answer.brokers}
        for topic in answer.topics:
            if topic.name is None:
                continue
            match code_of(topic.error_code):
                case ErrorCode.NONE:
                    self._learn_topic(topic, address)
                case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._topics.pop(topic.name, None)
                case ErrorCode.INVALID_TOPIC_EXCEPTION:
                    raise RequestRejected(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {topic.name!r} is not valid")

    def _learn_topic(self, described: MetadataResponseTopic, address: Address) -> None:
        name = str(described.name)
        topic_id = bytes(16) if described.topic_id is None else described.topic_id.bytes
        known = self._topics.get(name)
        partitions: dict[int, PartitionLeader] = {}
        for partition in described.partitions:
            index = int(partition.partition_index)
            replicas = tuple(int(node_id) for node_id in partition.replica_nodes)
            leader = PartitionLeader(int(partition.leader_id), int(partition.leader_epoch), replicas)
            before = known.partitions.get(index) if known is not None and known.topic_id == topic_id else None
            partitions[index] = before if before is not None and before.leader_epoch > leader.leader_epoch else leader
        self._topics[name] = Topic(name, topic_id, partitions, self.now(), address)

    def learn_leader(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        leader_id: int,
        leader_epoch: int,
        endpoints: Iterable[tuple[int, str, int]],
    ) -> bool:
        """An answer named a leader (KIP-951) in the topic of that id; true when that is news."""
        for node_id, host, port in endpoints:
            self.nodes[node_id] = Address(host, port)
        known = self._topics.get(topic)
        if known is None or known.topic_id != topic_id:
            # Epochs of a topic that was deleted say nothing of its successor.
            return False
        leader = known.partitions.get(partition)
        if leader is None or leader_id < 0:
            return False
        is_newer = leader_epoch > leader.leader_epoch or (leader_epoch == leader.leader_epoch and leader.leader_id < 0)
        if not is_newer:
            return False
        leader.leader_id, leader.leader_epoch = leader_id, leader_epoch
        return True

    def leader_address(self, topic: Topic, partition: int) -> Address | None:
        """Where the leader listens, as far as is known; None while there is no leader."""
        return self.nodes.get(topic.require_partition(partition).leader_id)


def _is_unsettled(described: MetadataResponseTopic) -> bool:
    """Whether a node could not say if there is such a topic."""
    return code_of(described.error_code) is ErrorCode.LEADER_NOT_AVAILABLE


def _is_at_a_loss(answer: MetadataResponse) -> bool:
    """Whether it comes from a node that hears of no leader."""
    return answer.controller_id < 0 or any(_is_unsettled(topic) for topic in answer.topics)


def _leaderless(names: Names) -> RequestRejected:
    what = "which topics exist" if names is None else f"whether topic {', '.join(map(repr, names))} exists"
    return RequestRejected(
        ErrorCode.LEADER_NOT_AVAILABLE, f"no node that answers hears of a leader of the quorum, so {what} is not known"
    )
