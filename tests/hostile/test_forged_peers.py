"""Somebody who says to be a node: reserved keys, topics named like other directories, epochs without end, foreign producers.

None of it needs a credential. What such a client may still do is in docs/reliability.md.
"""

from __future__ import annotations

import datetime
import json
import time
from functools import partial
from pathlib import Path

import httpx
import pytest
from forgekit import EVIL_KEYS, Forger, forgers
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.static.primitive import i16, i32Timedelta
from siegekit import Siege

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Txn, encode, put
from raftlake.kv.keys import PRODUCERS_NEXT_KEY
from raftlake.ports.peer_rpcs import ControlRpc, PeerMessage, ProposeRpc
from raftlake.raft.credit import REQUEST_STEP_MS, REQUEST_STEPS
from raftlake.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest, VoteResponse
from raftlake.raft.types import EPOCH_MAX, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch
from waitkit import wait_until

pytestmark = pytest.mark.process


def batch_of(txn: Txn) -> bytes:
    return bytes(build_batch([Record(offset=0, key=None, value=encode(txn))], timestamp_ms=1))


def reserved(siege: Siege) -> dict[str, int]:
    """The reserved keys, each with its version."""
    node = next(iter(siege.quorum.nodes.values()))
    url = f"http://{node.http_address}/v1/kv"
    answer = httpx.get(url, params={"prefix": "/raftlake/"}, trust_env=False)
    assert answer.status_code == httpx.codes.OK, answer.text
    return {entry["key"]: entry["version"] for entry in answer.json()["entries"]}


def directories(siege: Siege) -> set[Path]:
    """All that lies beside the nodes' directories, two levels up."""
    root = siege.quorum.data_dir
    return {path for place in (root, root.parent, root.parent.parent) for path in place.iterdir()}


def test_a_proposal_of_a_forged_node_writes_no_reserved_key(siege: Siege) -> None:
    before, places = reserved(siege), directories(siege)
    with siege.attack("reserved keys by a Produce to the metadata log"), forgers(siege, 1) as found:
        for key, value in EVIL_KEYS:
            answers = {forger.say(ProposeRpc(batch=batch_of(put(key, value)))).error for forger in found}
            assert answers <= {ErrorCode.POLICY_VIOLATION, ErrorCode.NOT_LEADER_OR_FOLLOWER}, key
            assert ErrorCode.POLICY_VIOLATION in answers, key
    # The honest producers take their ids meanwhile.
    untouched = {key: version for key, version in before.items() if key != PRODUCERS_NEXT_KEY}
    assert {key: version for key, version in reserved(siege).items() if key != PRODUCERS_NEXT_KEY} == untouched
    assert directories(siege) == places


@pytest.mark.parametrize("claimed", [2, 77])
def test_epochs_without_end_depose_nobody(siege: Siege, claimed: int) -> None:
    requests = [
        BeginQuorumEpochRequest(leader_id=NodeId(claimed), leader_epoch=EPOCH_MAX),
        EndQuorumEpochRequest(leader_id=NodeId(claimed), leader_epoch=EPOCH_MAX, preferred_candidates=()),
        VoteRequest(
            candidate=ReplicaKey(NodeId(claimed)),
            epoch=EPOCH_MAX,
            log_end=OffsetAndEpoch(Offset(2**40), Epoch(EPOCH_MAX - 1)),
            pre_vote=False,
        ),
    ]

    def attack() -> None:
        for forger in found:
            for request in requests:
                rpc = ControlRpc(cluster_id=None, messages=(PeerMessage(METADATA_GROUP, request),))
                (part,) = forger.say(rpc).messages
                assert part.body.error is ErrorCode.INVALID_REQUEST
                assert part.body.leader_epoch < EPOCH_MAX

    what = f"the last epoch by node {claimed}"
    with siege.attack(what), forgers(siege, claimed) as found:
        siege.depose_nobody(attack, what)
    told = [
        httpx.get(f"http://{node.http_address}/health/live", trust_env=False).json()
        for node_id, node in siege.quorum.nodes.items()
        if node_id != claimed
    ]
    assert all("refused epoch" in answer["epochs"]["__cluster_metadata-0"] for answer in told), json.dumps(told)


def test_a_stranger_who_says_to_lead_the_next_epoch_may_depose_the_leader_and_costs_no_record(siege: Siege) -> None:
    """A leader may be in a voter set that a replica has not fetched yet (KIP-853), so its request is taken, within the credits.
    Then there is no leader until the voters have elected one, and nothing that was acknowledged is lost."""
    with siege.attack("BeginQuorumEpoch of a stranger"), forgers(siege, 77) as found:
        for _ in range(3):
            _, epoch = siege.leadership()
            begin = BeginQuorumEpochRequest(leader_id=NodeId(77), leader_epoch=Epoch(epoch + 1))
            rpc = ControlRpc(cluster_id=None, messages=(PeerMessage(METADATA_GROUP, begin),))
            for forger in found:
                (part,) = forger.say(rpc).messages
                assert part.body.leader_epoch in (epoch, epoch + 1)
            _, elected = siege.leadership()
            assert elected != epoch + 1, "that epoch was the stranger's"


def pre_vote(forger: Forger, node_id: int, epoch: int) -> VoteResponse:
    """The answer of the forger's node, `node_id`, to a pre-vote of another voter."""
    other = ReplicaKey(NodeId(node_id % 3 + 1))
    request = VoteRequest(candidate=other, epoch=Epoch(epoch), log_end=OffsetAndEpoch(Offset(0), Epoch(0)), pre_vote=True)
    (part,) = forger.say(ControlRpc(cluster_id=None, messages=(PeerMessage(METADATA_GROUP, request),))).messages
    assert isinstance(part.body, VoteResponse)
    return part.body


def is_leap_refused(forger: Forger, node_id: int) -> bool:
    epoch = pre_vote(forger, node_id, EPOCH_MAX).leader_epoch
    return pre_vote(forger, node_id, epoch + REQUEST_STEPS).error is ErrorCode.INVALID_REQUEST


def test_epochs_at_the_very_limit_stop_no_election(siege: Siege) -> None:
    """All that requests may raise the epoch by is spent at each node, and what comes back of it for a while."""
    with siege.attack("epochs as high as they are taken"), forgers(siege, 1) as found:
        nodes = list(zip(siege.quorum.nodes, found, strict=True))
        for node_id, forger in nodes:
            # A node that learns of another's epoch just then has spent nothing.
            wait_until(partial(is_leap_refused, forger, node_id), f"node {node_id} refuses a leap", seconds=60)
        spent_at = dict.fromkeys(siege.quorum.nodes, time.monotonic())
        # The nodes were raised one after the other. One that learns of another's epoch by itself has made no leap.
        agree = lambda: len({pre_vote(forger, node_id, EPOCH_MAX).leader_epoch for node_id, forger in nodes}) == 1  # noqa: E731
        wait_until(agree, "all nodes are in one epoch", seconds=60)
        for _ in range(100):
            for node_id, forger in nodes:
                epoch = pre_vote(forger, node_id, EPOCH_MAX).leader_epoch
                leapt = pre_vote(forger, node_id, epoch + REQUEST_STEPS).error
                # Four come back in a second. A busy machine may take so long that all are there again.
                came_back = (time.monotonic() - spent_at[node_id]) * 1000 / REQUEST_STEP_MS
                assert leapt is ErrorCode.INVALID_REQUEST or came_back >= REQUEST_STEPS - 1
                if leapt is not ErrorCode.INVALID_REQUEST:
                    spent_at[node_id] = time.monotonic()
                pre_vote(forger, node_id, epoch + 1)


def test_the_epoch_of_a_foreign_producer_is_not_given_out(siege: Siege) -> None:
    with siege.attack("InitProducerId for the ids of others"), forgers(siege, 77) as found:
        for forger in found:
            for producer_id in range(20):
                for epoch in (0, 1, 5, 1_000, 32_767):
                    request = InitProducerIdRequest(
                        transactional_id=None,
                        transaction_timeout=i32Timedelta.parse(datetime.timedelta(seconds=5)),
                        producer_id=producer_id,  # type: ignore[arg-type]
                        producer_epoch=i16(epoch),
                    )
                    answer = forger.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
                    assert int(answer.producer_id) != producer_id
