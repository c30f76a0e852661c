"""Changing voters through the client: what is asked for again, and what is not."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse
from kio.schema.types import BrokerId

from clientkit import DROP, FakeQuorum, run
from clientkit_answers import describe_cluster
from raftlake.client import AsyncClient, NoReachableNode
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
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


def test_why_a_change_is_not_made_yet_is_told_each_time() -> None:
    """Not a refusal, nor an answer without a reason, nor that nobody leads."""
    lags = answer(ErrorCode.REQUEST_TIMED_OUT, "node 3 lags")
    others = answer(ErrorCode.REQUEST_TIMED_OUT), answer(ErrorCode.NOT_CONTROLLER, "another node leads")
    replies = lags, *others, lags, answer(ErrorCode.NONE)
    told: list[str] = []

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=5_000) as client:
            for reply in replies:
                quorum.nodes[1].once(ApiKey.REMOVE_RAFT_VOTER, lambda *_, reply=reply: reply)
            await client.remove_voter(3, DISK, not_yet=told.append)

    run(test())
    assert told == ["node 3 lags"] * 2


def test_a_change_whose_answer_was_lost_finds_its_own_work_done() -> None:
    assert removing(DROP, answer(ErrorCode.VOTER_NOT_FOUND, "no voter")) == [3, 3]


def test_a_change_that_the_next_leader_committed_is_done() -> None:
    """The leader before was replaced while the change waited for its commit."""
    assert removing(answer(ErrorCode.REQUEST_TIMED_OUT), answer(ErrorCode.VOTER_NOT_FOUND, "no voter")) == [3, 3]


def test_a_change_that_was_never_sent_is_not_taken_for_its_own_work() -> None:
    """The leader cannot be reached, and the next one says that there is no such voter."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=5_000) as client:
            await quorum.nodes[1].stop()
            asked = quorum.nodes[2]
            followed = iter([None])

            def cluster(*_: object) -> Any:
                described = describe_cluster(quorum, asked, None)
                return described if next(followed, 2) is None else replace(described, controller_id=BrokerId(2))

            asked.standing[ApiKey.DESCRIBE_CLUSTER] = cluster
            asked.standing[ApiKey.REMOVE_RAFT_VOTER] = lambda *_: answer(ErrorCode.VOTER_NOT_FOUND, "no voter")
            with pytest.raises(RequestRejected, match="no voter") as caught:
                await client.remove_voter(3, DISK)
            assert caught.value.code is ErrorCode.VOTER_NOT_FOUND and asked.count(ApiKey.DESCRIBE_CLUSTER) > 1

    run(test())


def test_a_code_that_this_client_does_not_know_is_a_refusal() -> None:
    unknown = RemoveRaftVoterResponse(
        throttle_time=datetime.timedelta(0), error_code=KioErrorCode.unknown_member_id, error_message="told why"
    )
    with pytest.raises(RequestRejected, match="remove voter 3: told why") as caught:
        removing(unknown)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_refusal_carries_the_leaders_reason() -> None:
    with pytest.raises(RequestRejected, match="would lose their majority") as caught:
        removing(answer(ErrorCode.NOT_ENOUGH_REPLICAS, "the voters would lose their majority"))
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def going_on(first: Any, then: Any) -> None:
    """The leader answers `first`, and `then` as often as it is asked, until the time is over."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=300) as client:
            quorum.nodes[1].once(ApiKey.REMOVE_RAFT_VOTER, lambda *_: first)
            quorum.nodes[1].standing[ApiKey.REMOVE_RAFT_VOTER] = lambda *_: then
            await client.remove_voter(3, DISK)

    run(test())


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (DROP, DROP),
        (DROP, answer(ErrorCode.NOT_CONTROLLER, "another node leads")),
        (answer(ErrorCode.REQUEST_TIMED_OUT), answer(ErrorCode.REQUEST_TIMED_OUT)),
        (answer(ErrorCode.REQUEST_TIMED_OUT), answer(ErrorCode.REQUEST_TIMED_OUT, "not committed yet")),
        (answer(ErrorCode.REQUEST_TIMED_OUT), answer(ErrorCode.NOT_CONTROLLER, "another node leads")),
        (answer(ErrorCode.REQUEST_TIMED_OUT), answer(ErrorCode.NOT_ENOUGH_REPLICAS, "node 2 does not answer")),
        (DROP, answer(ErrorCode.NOT_ENOUGH_REPLICAS, "node 2 does not answer")),
    ],
    ids=[
        "no answer",
        "no answer, then another leader",
        "an answer without a reason",
        "no reason, then one",
        "no reason, then another leader",
        "no reason, then a refusal",
        "no answer, then a refusal",
    ],
)
def test_a_change_that_may_have_been_made_is_an_unknown_outcome(first: Any, then: Any) -> None:
    told = r"remove voter 3 was sent, .*not known.*may have been carried out.*look at the voters, then decide"
    with pytest.raises(UnknownOutcome, match=told):
        going_on(first, then)


def test_a_change_whose_leader_goes_away_with_it_is_an_unknown_outcome() -> None:
    """It is sent, and no node can be asked any more."""

    async def test() -> None:
        settings = {"request_timeout_ms": 2_000, "unreachable_timeout_ms": 200}
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, **settings) as client:

            def leave(*_: object) -> Any:
                quorum.nodes[1].standing[ApiKey.DESCRIBE_CLUSTER] = lambda *_: DROP
                return DROP

            quorum.nodes[1].once(ApiKey.REMOVE_RAFT_VOTER, leave)
            with pytest.raises(UnknownOutcome, match="look at the voters"):
                await client.remove_voter(3, DISK)

    run(test())


def test_a_change_that_was_never_sent_is_none_of_them() -> None:
    async def test() -> None:
        settings = {"request_timeout_ms": 2_000, "unreachable_timeout_ms": 200}
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, **settings) as client:
            quorum.nodes[1].standing[ApiKey.DESCRIBE_CLUSTER] = lambda *_: DROP
            with pytest.raises(NoReachableNode):
                await client.remove_voter(3, DISK)

    run(test())


def test_why_the_leader_put_a_change_off_is_told_when_it_says_nothing_more() -> None:
    """The last of many answers was that another node leads now, and the reason before it was lost."""
    told = "remove voter 3: another node leads; the leader said before: not yet"
    with pytest.raises(RequestRejected, match=told):
        going_on(answer(ErrorCode.REQUEST_TIMED_OUT, "not yet"), answer(ErrorCode.NOT_CONTROLLER, "another node leads"))


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_a_change_that_the_leader_put_off_all_the_time_was_not_made(code: ErrorCode) -> None:
    with pytest.raises(RequestRejected, match="another change"):
        going_on(answer(code, "another change"), answer(code, "another change"))
