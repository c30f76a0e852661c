"""Why the coordinator refuses a producer, in words: for the log of the node that was asked, and for the answer to Produce.

What is refused `requests` and `raising` decide. Names who asks and who goes on under the transactional id, and what to do.
"""

from __future__ import annotations

from dataclasses import replace

from raftlake.errors import ErrorCode
from raftlake.replica.transaction_entry import Transaction
from raftlake.replica.transactions.raising import EndAndRaise
from raftlake.replica.transactions.requests import AddPartitions, Answer, End, InitProducer, Request

NEW_PRODUCER = "make a new producer, which asks InitProducerId"


def explained(answer: Answer, request: Request, standing: Transaction | None) -> Answer:
    """The answer to a request that was judged over this transaction, with why it is refused."""
    if answer.why or answer.error is ErrorCode.NONE:
        return answer
    producer_id, epoch = _asker(request)
    if answer.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        return replace(answer, why=told_unmapped(standing, producer_id))
    if standing is not None and answer.error is ErrorCode.PRODUCER_FENCED:
        return replace(answer, why=told_fenced(standing, producer_id, epoch))
    if standing is not None and answer.error is ErrorCode.INVALID_TXN_STATE and isinstance(request, End | EndAndRaise):
        return replace(answer, why=_told_ended(standing, request.commit))
    return answer


def _asker(request: Request) -> tuple[int, int]:
    """The producer id and the epoch that a request names, or (-1, -1)."""
    if isinstance(request, InitProducer):
        return request.expected or (-1, -1)
    if isinstance(request, AddPartitions | End | EndAndRaise):
        return request.producer_id, request.epoch
    return -1, -1


def told_fenced(standing: Transaction, producer_id: int, epoch: int) -> str:
    """Why the transactional id does not take this epoch of this producer."""
    newest_id, newest = standing.successor
    if (producer_id, epoch) == (newest_id, newest):
        return f"producer {producer_id}: a command has ended the transaction of epoch {epoch} and retired it; {NEW_PRODUCER}"
    of = "" if producer_id == newest_id else f" of producer {newest_id}"
    return (
        f"producer {producer_id} has epoch {epoch}, the newest is {newest}{of}: another producer has the transactional id, or "
        f"the transaction was aborted; {NEW_PRODUCER}"
    )


def told_unmapped(standing: Transaction | None, producer_id: int) -> str:
    """Why the transactional id is not this producer's."""
    if standing is None:
        return f"the transactional id is not known, or was forgotten; {NEW_PRODUCER}"
    return f"the transactional id has producer {standing.producer_id}, not {producer_id}; {NEW_PRODUCER}"


def _told_ended(standing: Transaction, commit: bool) -> str:
    asked = "commit" if commit else "abort"
    told = f"producer {standing.producer_id} epoch {standing.epoch} cannot {asked}: the state is {standing.state.value}"
    return f"{told}; {NEW_PRODUCER}" if standing.is_retired else told
