"""How far another's word may raise the epoch of a replica, and how often it stands for election.

There are 2^31 epochs. A replica that believed in the last one could never take part in an election again, nor give it up. An
honest election takes one; so nothing that a sender without credentials does may take them faster than a few a second.

- A *request* is what anybody can send, in any voter's name. Together they raise the epoch by at most REQUEST_STEPS, and by
  one more each REQUEST_STEP_MS.
- An *answer* comes over a connection that this replica opened, to an address where it knows a voter or the quorum. What a
  majority of the voters has answered is so. What fewer say may be damage, or the address that of another by now: they raise
  the epoch by ANSWER_STEPS, and by one more each ANSWER_STEP_MS; a voter is believed when that has added up to its epoch.
- Its *own* candidacies are provoked by who forges an EndQuorumEpoch. They follow one another with OWN_STEP_MS between them
  once OWN_STEPS are used up. Only this replica's candidacies use them up, so that no other node can take them from an election.

Safe: an epoch that is refused, or taken up late, is a message that was lost or late. What a replica has promised stands in its
own epoch, which is never lowered here, and in which it goes on to answer.

Live: a sender that spends the steps of requests leaves none to honest ones, and stops no node by it. A step comes back after a
quarter of a second. Meanwhile the epoch of an honest candidate is learnt from answers: a replica that does not hear its leader
asks all voters in turn, a leader those that fell silent, a candidate all of them. Forged requests cannot spend what answers
have: an answer names the epoch of a voter, which requests raised by as little as ours. Who was away while the others went on,
by however many epochs, hears of it from a majority at once. Where only a minority is left to tell, it waits: about a minute for
each 4,000 epochs above ANSWER_STEPS. The rate of answers is above that at which the voters of a group can be made to rise
together, so that the wait ends. A replica without a vote takes less from requests than a voter does: what it has taken, a
leader can take from it (`elections.announce_epoch`). Who took a voter's share and votes no longer may stand far above its
leader. When the leader refuses its requests, it asks it at its address, and the answer counts as that of one voter.

A replica that has nothing yet takes any epoch from an answer: its quorum may be old. Restarts forget what was spent.
Knows nothing of what else a message says.
"""

from __future__ import annotations

from raftlake.raft.actions import ReportRefusedEpoch
from raftlake.raft.credit import Credit
from raftlake.raft.quorum import largest_reached_by
from raftlake.raft.state import GroupState
from raftlake.raft.types import EPOCH_MAX, Epoch, NodeId


def may_enter(group: GroupState, epoch: Epoch, source: NodeId, now_ms: int, *, is_answer: bool) -> bool:
    """Whether the epoch that `source` names may become ours, which the caller then sees to; reported where it may not."""
    if epoch <= group.epoch:
        return True
    if is_answer:
        may = _is_believed(group, epoch, source, now_ms)
    else:
        may = _of_requests(group).spend(epoch - group.epoch, now_ms)
    if not may:
        report(group, epoch, source)
    return may


def report(group: GroupState, epoch: Epoch, source: NodeId) -> None:
    """The epoch is not taken in."""
    group.actions.append(ReportRefusedEpoch(source=source, epoch=epoch, own_epoch=group.epoch))


def may_ask(group: GroupState, refused: Epoch, now_ms: int) -> bool:
    """Whether a leader is to ask a replica, in whose name a request was refused, for its epoch. The answer cannot be forged.
    Where the replica's address is not known, as an observer's may not be, the request is taken when as much has been saved."""
    group.credit.requests.save_for(refused - group.epoch, now_ms)
    return group.credit.questions.spend(1, now_ms)


def highest_of_requests(group: GroupState, now_ms: int) -> Epoch:
    """The highest epoch that a request may raise ours to."""
    return Epoch(group.epoch + _of_requests(group).amount(now_ms))


def may_stand(group: GroupState, now_ms: int) -> bool:
    """Whether to begin the next epoch as its candidate, which the caller then does."""
    return group.epoch < EPOCH_MAX and group.credit.own.spend(1, now_ms)


def wait_to_stand_ms(group: GroupState, now_ms: int) -> int:
    """How long until another candidacy. Drawn, so that two replicas that wait do not split the votes again and again."""
    wait_ms = group.credit.own.wait_ms(now_ms) + group.random_jitter_ms()
    return wait_ms if group.epoch < EPOCH_MAX else group.random_election_timeout_ms()


def _of_requests(group: GroupState) -> Credit:
    return group.credit.requests if group.may_stand() else group.credit.requests_without_vote


def _is_believed(group: GroupState, epoch: Epoch, source: NodeId, now_ms: int) -> bool:
    if group.epoch == 0 and group.log_end == 0:
        return True
    if source in group.other_voters:
        told = group.told_epochs
        group.told_epochs = {voter: told[voter] for voter in group.other_voters if voter in told} | {source: epoch}
    leap = epoch - max(group.epoch, _told_by_majority(group))
    if leap <= 0 or group.credit.answers.spend(leap, now_ms):
        return True
    if source in group.other_voters:
        group.credit.answers.save_for(leap, now_ms)
    return False


def _told_by_majority(group: GroupState) -> int:
    """The highest epoch that a majority of the voters has answered to have reached; 0 where too few have."""
    others, majority = group.other_voters, group.voters.majority
    if len(others) < majority:
        return 0
    return largest_reached_by([group.told_epochs.get(voter, 0) for voter in others], majority)
