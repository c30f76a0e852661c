"""The remote tier over HTTP: how far partitions are copied, and the quorum's keys made anew from a table.

A node tells of the partitions that it leads, and of what it could not read for consumers, leader or not. Reasons have no path
of the node's own. Only the leader of the metadata log changes keys: other nodes name it.
"""

from __future__ import annotations

import json

from raftlake.errors import for_clients
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import TierFailure
from raftlake.replica.node import ReplicaNode
from raftlake.replica.tiering.rebuild import Rebuilt
from raftlake.replica.tiering.tiering import TierStatus
from raftlake.replica.tiering.unreadable import Unreadable
from raftlake.runtime.http.base import HttpError, Request, Response, json_bytes
from raftlake.runtime.http.exchange import Waiter
from raftlake.runtime.http.hosts import require_json
from raftlake.runtime.http.kv import elsewhere, failed

NO_TIER = "this node has no remote tier (tier.uri)"
BODY_BYTES_MAX = 4096


class TierHandlers:
    """Handlers for the routes of the tier."""

    def __init__(self, node: ReplicaNode, root: str) -> None:
        """`root` is the data directory, whose path is told to no client."""
        self._node = node
        self._root = root

    async def status(self, request: Request) -> Response:
        """How far the partitions that this node leads are copied to the remote tier, what stands in the way, and what this node
        cannot read for consumers."""
        request.query()
        tiering = self._node.tiering
        if not tiering.is_on:
            raise HttpError(404, NO_TIER)
        told: dict[str, object] = {"partitions": [tier_json(status) for status in tiering.statuses()]}
        if tiering.gone is not None and tiering.gone.warnings:
            told["deletedTopics"] = [for_clients(warning, self._root) for warning in tiering.gone.warnings]
        unreadable = self._node.read_tally.unreadable.all()
        if unreadable:
            told["unreadable"] = [unreadable_json(each) for each in unreadable]
        return Response(200, json_bytes(told))

    async def rebuild(self, request: Request) -> Response:
        """Make the quorum's keys of one partition anew from its table. The leader of the quorum does it; others send there."""
        request.query()
        require_json(request)
        request.body_bytes(BODY_BYTES_MAX)
        topic, partition = parse_partition(await request.body(BODY_BYTES_MAX))
        node = self._node
        if not node.tiering.is_on:
            raise HttpError(404, NO_TIER)
        quorum = node.quorum.partition
        if quorum is None or not quorum.is_serving:
            raise elsewhere(node, request, node.metadata_leader_id)
        known = node.names.topic(topic)
        if known is None or partition >= known.partitions:
            raise HttpError(404, f"there is no partition {topic}-{partition}")
        group = GroupId(topic, partition, known.topic_id)
        waiter: Waiter[Rebuilt] = Waiter()
        node.tiering.rebuild(group, waiter.set)
        rebuilt = await waiter
        if rebuilt.outcome is not None:
            raise failed(node, request, rebuilt.outcome)
        if rebuilt.tiered is None:
            assert rebuilt.error is not None
            is_absent = rebuilt.error.failure is TierFailure.ABSENT
            raise HttpError(409 if is_absent else 502, for_clients(rebuilt.error.reason))
        tiered = rebuilt.tiered
        return Response(
            200,
            json_bytes(
                {
                    "topic": topic,
                    "partition": partition,
                    "incarnation": tiered.incarnation,
                    "startOffset": tiered.start_offset,
                    "endOffset": tiered.end_offset,
                    "segments": tiered.segments,
                    "bytes": tiered.size,
                }
            ),
        )


def parse_partition(body: bytes) -> tuple[str, int]:
    """`{"topic", "partition"}`."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "the body is no JSON") from error
    topic = fields.get("topic") if isinstance(fields, dict) else None
    partition = fields.get("partition") if isinstance(fields, dict) else None
    is_number = isinstance(partition, int) and not isinstance(partition, bool) and 0 <= partition < 2**31
    if not isinstance(topic, str) or not is_number or set(fields) != {"topic", "partition"}:
        raise HttpError(400, 'the body must be {"topic": NAME, "partition": NUMBER}')
    assert isinstance(partition, int)
    return topic, partition


def tier_json(status: TierStatus) -> dict[str, object]:
    """A partition in `/v1/tier`."""
    error = status.error
    return {
        "topic": status.group.topic,
        "partition": status.group.partition,
        "startOffset": status.start_offset,
        "copiedEndOffset": status.copied_end,
        "checkedEndOffset": status.checked_end,
        "highWatermark": status.high_watermark,
        "lagMs": status.lag_ms,
        "failures": status.failures,
        "failingSinceMs": status.failing_since_ms,
        "error": None if error is None else {"failure": error.failure.value, "reason": for_clients(error.reason)},
    }


def unreadable_json(part: Unreadable) -> dict[str, object]:
    """What cannot be read, in `/v1/tier`. Without offsets: a time was looked for."""
    return {
        "topic": part.group.topic,
        "partition": part.group.partition,
        "firstOffset": part.first,
        "lastOffset": part.last,
        "sinceMs": part.since_ms,
        "error": {"failure": part.error.failure.value, "reason": for_clients(part.error.reason)},
    }
