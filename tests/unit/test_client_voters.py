"""Changing voters through the client: what is asked for again, and what is not."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse

from clientkit import DROP, FakeQuorum, run
from raftlake.client import AsyncClient
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey

DISK = b"d" * 16


def answer(code: ErrorCode, message: str | None = None) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(
        throttle_time=datetime.timedelta(0), error_code=KioErrorCode(int(code)), error_message=message
    )


def removing(*replies: Any) -> list[int]:
    """Node 3 is to be removed, the leader answers `replies` in turn; the voters that were named."""
    named: list[int] = []

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=5_000) as client:
            for reply in replies:

                def take(_header: object, message: Any, reply: Any = reply) -> Any:
                    named.append(message.voter_id)
                    return reply

                quorum.nodes[1].once(ApiKey.REMOVE_RAFT_VOTER, take)
            await client.remove_voter(3, DISK)

    run(test())
    return named


def test_a_change_that_the_leader_cannot_make_yet_is_asked_for_again() -> None:
    assert removing(answer(ErrorCode.REQUEST_TIMED_OUT, "another change"), answer(ErrorCode.NONE)) == [3, 3]


def test_a_change_whose_answer_was_lost_finds_its_own_work_done() -> None:
    assert removing(DROP, answer(ErrorCode.VOTER_NOT_FOUND, "no voter")) == [3, 3]


def test_a_refusal_carries_the_leaders_reason() -> None:
    with pytest.raises(RequestRejected, match="would lose their majority") as caught:
        removing(answer(ErrorCode.NOT_ENOUGH_REPLICAS, "the voters would lose their majority"))
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
