"""Topics and the cluster: create, delete, describe.

A create or delete that had to be sent twice may find its own work done; that counts as done. One that no answer decides is an
UnknownOutcome. A delete names the topic by its id: sent twice, it leaves alone what was created under the name meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raftlake.client import protocol
from raftlake.client.change import Change
from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import Disconnected, NoReachableNode
from raftlake.client.routing import LEADER_BACKOFF_MS_MAX, RETRIABLE
from raftlake.client.types import Address, ClusterDescription, TopicDescription
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey
from raftlake.wire.quorum import DESCRIBE_QUORUM_VERSION, QuorumDescription, describe_quorum_request, quorum_description

#: What the request has room for; nodes allow far fewer.
PARTITIONS_MAX = 2**31 - 1


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def topics(self, names: Iterable[str] | None = None, timeout_ms: float | None = None) -> tuple[TopicDescription, ...]:
        """Every topic, by name; or those of `names` that exist."""
        asked = None if names is None else tuple(sorted(set(names)))
        return tuple(topic.describe() for topic in (await self._cluster.topics(self._deadline(timeout_ms), asked)).values())

    async def describe_topic(self, name: str, timeout_ms: float | None = None) -> TopicDescription:
        """One topic, asked for anew; RequestRejected(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist."""
        return (await self._cluster.refresh_topic(name, self._deadline(timeout_ms))).describe()

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
        timeout_ms: float | None = None,
    ) -> TopicDescription:
        """Create a topic and wait until every partition has a leader.

        RequestRejected(TOPIC_ALREADY_EXISTS) when it exists, unless `exist_ok`.
        """
        if not -PARTITIONS_MAX <= partitions <= PARTITIONS_MAX:
            told = f"create topic {name!r} with {partitions} partitions: no request names, and no quorum has, so many"
            raise RequestRejected(ErrorCode.INVALID_PARTITIONS, told)
        deadline = self._deadline(timeout_ms)
        # The node waits for leaders, and answers well before this client gives its connection up.
        patience_ms = self._patience_ms(deadline) / 2
        request = protocol.create_topic_request(name, partitions, -1, configs or {}, max(1, int(patience_ms)))
        change = Change(self._cluster, f"create topic {name!r}", deadline)
        while True:
            answer = await change.ask(ApiKey.CREATE_TOPICS, protocol.CREATE_TOPICS_VERSION, request)
            code, message = protocol.create_topic_result(answer)
            is_own_work = code is ErrorCode.TOPIC_ALREADY_EXISTS and (exist_ok or change.may_be_done)
            if code is ErrorCode.NONE or is_own_work:
                return await self.wait_for_leaders(name, deadline)
            await change.pause_or_raise(code, message)

    async def delete_topic(self, name: str, timeout_ms: float | None = None) -> None:
        """Delete a topic and its data; RequestRejected(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist."""
        deadline = self._deadline(timeout_ms)
        change = Change(self._cluster, f"delete topic {name!r}", deadline)
        topic_id = await self._id_of(name, deadline)
        while True:
            request = protocol.delete_topic_request(name, topic_id, max(1, int(self._patience_ms(deadline))))
            answer = await change.ask(ApiKey.DELETE_TOPICS, protocol.DELETE_TOPICS_VERSION, request)
            code, message = protocol.delete_topic_result(answer)
            is_gone = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
            if code is ErrorCode.NONE or (is_gone and change.may_be_done):
                self._cluster.forget_topic(name)
                return
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise RequestRejected(code, f"topic {name!r} does not exist")
            await change.pause_or_raise(code, message)
            if code is ErrorCode.UNKNOWN_TOPIC_ID:
                # Nothing was sent before. The id comes from a node that lags, or went to one.
                topic_id = await self._id_of(name, deadline)

    async def _id_of(self, name: str, deadline: Deadline) -> bytes | None:
        """The id of the topic that has the name now. None where metadata knows no such topic, or no ids: what stands under the
        name may be a key that describes no topic, which is deleted by the name."""
        try:
            topic_id = (await self._cluster.refresh_topic(name, deadline)).topic_id
        except RequestRejected as refused:
            if refused.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise
            return None
        return topic_id if any(topic_id) else None

    def _patience_ms(self, deadline: Deadline) -> float:
        """How long one node may take to answer a change."""
        return min(deadline.remaining_ms(), self._cluster.config.attempt_timeout_ms)

    async def describe_cluster(self, timeout_ms: float | None = None) -> ClusterDescription:
        answer, _ = await self._cluster.ask_any(
            ApiKey.DESCRIBE_CLUSTER,
            protocol.DESCRIBE_CLUSTER_VERSION,
            protocol.describe_cluster_request(),
            self._deadline(timeout_ms),
        )
        described = protocol.cluster_description(answer)
        self._cluster.nodes.update(described.nodes)
        return described

    async def describe_quorum(
        self, topic: str = protocol.METADATA_TOPIC, partition: int = 0, timeout_ms: float | None = None
    ) -> QuorumDescription:
        """The quorum as its leader sees it, by default that of the metadata log. Waits for a leader while there is none."""
        deadline = self._deadline(timeout_ms)
        backoff = Backoff(self._cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        request = describe_quorum_request(topic, partition)
        while True:
            cluster = await self.describe_cluster(deadline.remaining_ms())
            code = ErrorCode.LEADER_NOT_AVAILABLE
            for address in self._quorum_candidates(cluster):
                try:
                    connection = await self._cluster.pool.get(address)
                    answer = await self._cluster.request(
                        connection, ApiKey.DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION, request, deadline
                    )
                except Disconnected:
                    continue
                result = quorum_description(answer, cluster.cluster_id)
                if isinstance(result, QuorumDescription):
                    return result
                code = result
            what = f"describe quorum of {topic}-{partition}"
            if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE):
                what = f"{what}: no node that answers leads it"
            await self.pause_or_raise(code, what, backoff, deadline)

    async def node_address(self, node_id: int, setting: str, timeout_ms: float | None = None) -> str | None:
        """One of a node's addresses, such as `http.listener`: every node knows those of all."""
        answer, _ = await self._cluster.ask_any(
            ApiKey.DESCRIBE_CONFIGS,
            protocol.DESCRIBE_CONFIGS_VERSION,
            protocol.node_configs_request(node_id),
            self._deadline(timeout_ms),
        )
        return protocol.configs_of(answer).get(setting)

    async def node_configs(self, node_id: int, timeout_ms: float | None = None) -> dict[str, str]:
        """The settings of one node, from that node itself where it can be reached (others know only its addresses)."""
        deadline = self._deadline(timeout_ms)
        address = self._cluster.nodes.get(node_id)
        request = protocol.node_configs_request(node_id)
        if address is not None:
            connection = await self._cluster.pool.get(address)
            answer = await self._cluster.request(
                connection, ApiKey.DESCRIBE_CONFIGS, protocol.DESCRIBE_CONFIGS_VERSION, request, deadline
            )
        else:
            answer, _ = await self._cluster.ask_any(
                ApiKey.DESCRIBE_CONFIGS, protocol.DESCRIBE_CONFIGS_VERSION, request, deadline
            )
        return protocol.configs_of(answer)

    async def topic_configs(self, topic: str, timeout_ms: float | None = None) -> dict[str, str]:
        """The settings of a topic, as any node knows them; RequestRejected(UNKNOWN_TOPIC_OR_PARTITION) without one."""
        deadline = self._deadline(timeout_ms)
        backoff = Backoff(self._cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        request = protocol.topic_configs_request(topic)
        while True:
            answer, _ = await self._cluster.ask_any(
                ApiKey.DESCRIBE_CONFIGS, protocol.DESCRIBE_CONFIGS_VERSION, request, deadline
            )
            try:
                return protocol.configs_of(answer)
            except RequestRejected as refused:
                # A node that may have missed topics says so.
                if refused.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                    raise
                await self.pause_or_raise(refused.code, f"settings of topic {topic!r}", backoff, deadline)

    def _quorum_candidates(self, cluster: ClusterDescription) -> list[Address]:
        """The controller first: of the metadata log it is the leader."""
        controller = cluster.nodes.get(cluster.controller_id)
        others = [*cluster.nodes.values(), *self._cluster.config.bootstrap]
        return list(dict.fromkeys([*([controller] if controller is not None else []), *others]))

    async def wait_for_leaders(self, name: str, deadline: Deadline, count: int = 1) -> TopicDescription:
        """The topic, once it has so many partitions and all of them have leaders. UnknownOutcome when the time is over."""
        backoff = Backoff(self._cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        while True:
            try:
                described = await self.describe_topic(name, deadline.remaining_ms())
            except RequestRejected as error:
                if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                    raise _without_leaders(name, f"it cannot be described ({error})") from None
            except NoReachableNode as error:
                raise _without_leaders(name, f"no node answers any more ({error})") from None
            else:
                if len(described.partitions) >= count and all(p.leader_id >= 0 for p in described.partitions):
                    return described
            if deadline.is_over():
                raise _without_leaders(name, "not every partition has a leader yet")
            await backoff.pause(deadline)

    async def pause_or_raise(self, code: ErrorCode, what: str, backoff: Backoff, deadline: Deadline) -> None:
        """After an error of what only asks: wait to ask again. RequestRejected for one that does not pass, or when the time is
        over."""
        if code not in RETRIABLE or deadline.is_over():
            raise RequestRejected(code, what)
        await backoff.pause(deadline)

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)


def _without_leaders(name: str, why: str) -> UnknownOutcome:
    told = f"topic {name!r} was created, but {why}; when all partitions will have a leader is not known"
    return UnknownOutcome(f"{told}: describe the topic before you use it")
