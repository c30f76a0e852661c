"""/v1/tier and /v1/tier/rebuild-metadata: who answers, who sends elsewhere, and each answer of the tier as a status."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.tiering.rebuild import Rebuilt
from raftlake.runtime.http.front import Serves
from raftlake.tier.entries import Tiered
from runtime_fakes import run
from runtime_http_fakes import FakeHttpNode, http_front

PATH = "/v1/tier/rebuild-metadata"
TOPIC_ID = b"o" * 16
BODY = {"topic": "orders", "partition": 1}
TIERED = Tiered(incarnation=2, start_offset=Offset(3), end_offset=Offset(9), segments=4, size=500)


def with_tier(node: FakeHttpNode, rebuilt: Rebuilt | None = None, *, serves: bool = True) -> list[GroupId]:
    """Gives the node a tier. The groups whose keys were made anew."""
    asked: list[GroupId] = []

    def rebuild(group: GroupId, done: Callable[[Rebuilt], None]) -> None:
        asked.append(group)
        done(rebuilt or Rebuilt(tiered=TIERED))

    tier: Any = SimpleNamespace(is_on=True, warnings=(), gone=None, statuses=list, rebuild=rebuild)
    node.tiering = tier
    node.quorum.partition = SimpleNamespace(is_serving=serves)
    topic = SimpleNamespace(name="orders", topic_id=TOPIC_ID, partitions=2)
    node.names = SimpleNamespace(topic={"orders": topic}.get)  # type: ignore[attr-defined]
    return asked


def test_the_leader_makes_the_keys_of_a_partition_anew() -> None:
    async def main() -> None:
        async with http_front() as on:
            asked = with_tier(on.node)
            answer = await on.client.post(PATH, json=BODY)
            assert answer.status_code == 200
            assert answer.json() == BODY | {
                "incarnation": 2,
                "startOffset": 3,
                "endOffset": 9,
                "segments": 4,
                "bytes": 500,
            }
            assert asked == [GroupId("orders", 1, TOPIC_ID)]

    run(main())


@pytest.mark.parametrize(("leader", "status"), [(2, 307), (1, 503), (-1, 503)])
def test_another_node_sends_to_the_leader(leader: int, status: int) -> None:
    async def main() -> None:
        async with http_front() as on:
            asked = with_tier(on.node, serves=False)
            on.node.metadata_leader_id = leader
            answer = await on.client.post(PATH, json=BODY, follow_redirects=False)
            assert (answer.status_code, asked) == (status, [])
            if status == 307:
                assert answer.headers["location"] == f"http://10.0.0.2:8092{PATH}"

    run(main())


@pytest.mark.parametrize(
    ("rebuilt", "status", "words"),
    [
        (Rebuilt(error=TierError(TierFailure.ABSENT, "never showed a row")), 409, "never showed a row"),
        (Rebuilt(error=TierError(TierFailure.UNKNOWN, "no answer")), 502, "no answer"),
        (Rebuilt(error=TierError(TierFailure.UNUSABLE, "no such bucket")), 502, "no such bucket"),
        (Rebuilt(outcome=ProposeOutcome(ProposeStatus.UNKNOWN)), 504, "unknown"),
        (Rebuilt(outcome=ProposeOutcome(ProposeStatus.REFUSED, reason="the key space is full")), 507, "key space is full"),
        (Rebuilt(outcome=ProposeOutcome(ProposeStatus.REFUSED)), 503, "nothing changed"),
    ],
)
def test_what_was_not_made_anew_says_why(rebuilt: Rebuilt, status: int, words: str) -> None:
    async def main() -> None:
        async with http_front() as on:
            with_tier(on.node, rebuilt)
            answer = await on.client.post(PATH, json=BODY)
            assert answer.status_code == status and words in answer.json()["error"]

    run(main())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 2000,
        b'{"topic": "orders"}',
        b'{"partition": 1}',
        b'{"topic": 1, "partition": 1}',
        b'{"topic": "orders", "partition": true}',
        b'{"topic": "orders", "partition": -1}',
        b'{"topic": "orders", "partition": 1.0}',
        b'{"topic": "orders", "partition": 2147483648}',
        b'{"topic": "orders", "partition": 1, "more": 1}',
    ],
)
def test_a_body_that_names_no_partition_is_refused(body: bytes) -> None:
    async def main() -> None:
        async with http_front() as on:
            asked = with_tier(on.node)
            answer = await on.client.post(PATH, content=body, headers={"content-type": "application/json"})
            assert (answer.status_code, asked) == (400, [])

    run(main())


def test_what_this_node_cannot_read_for_consumers_is_told() -> None:
    async def main() -> None:
        async with http_front() as on:
            with_tier(on.node)
            parts = on.node.read_tally.unreadable
            gone = TierError(TierFailure.DAMAGED, "/tier/orders/partition=1/x.parquet is gone")
            parts.note(GroupId("orders", 1, TOPIC_ID), gone, 30, 1_700_000_000_000)
            parts.note(GroupId("orders", 1, TOPIC_ID), gone, 12, 1_700_000_000_001)
            parts.note(GroupId("orders", 0, TOPIC_ID), TierError(TierFailure.UNKNOWN, "no answer"), None, 7)
            first, second = (await on.client.get("/v1/tier")).json()["unreadable"]
            assert (first["partition"], first["firstOffset"], first["error"]["failure"]) == (0, None, "unknown")
            assert second == {
                "topic": "orders",
                "partition": 1,
                "firstOffset": 12,
                "lastOffset": 30,
                "sinceMs": 1_700_000_000_000,
                "error": {"failure": "damaged", "reason": second["error"]["reason"]},
            }
            assert "x.parquet is gone" in second["error"]["reason"]
            parts.read(GroupId("orders", 1, TOPIC_ID), 12, 13)
            parts.searched(GroupId("orders", 0, TOPIC_ID))
            assert (await on.client.get("/v1/tier")).json() == {"partitions": []}

    run(main())


def test_what_is_not_there_or_not_allowed() -> None:
    async def main() -> None:
        async with http_front() as on:
            assert (await on.client.get("/v1/tier")).status_code == 404
            assert (await on.client.post(PATH, json=BODY)).status_code == 404, "no tier"
            asked = with_tier(on.node)
            assert (await on.client.get("/v1/tier")).json() == {"partitions": []}
            assert (await on.client.get(PATH)).status_code == 405
            assert (await on.client.post(PATH, content=b"{}")).status_code == 415, "a page of another site sends no JSON"
            assert (await on.client.post(PATH, json={"topic": "orders", "partition": 2})).status_code == 404
            assert (await on.client.post(PATH, json={"topic": "else", "partition": 0})).status_code == 404
            assert (await on.client.post(PATH, json=BODY | {"topic": "x" * 5000})).status_code == 413
            assert asked == []
        async with http_front(serves=Serves.OPS) as on:
            with_tier(on.node)
            assert (await on.client.get("/v1/tier")).status_code == 200
            assert (await on.client.post(PATH, json=BODY)).status_code == 404, "it changes keys"

    run(main())
