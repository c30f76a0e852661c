"""Outages of the quorum: what a query asks is asked again, as often and as long as its options say, and then fails in one line.

A question of the driver (topics, offsets, keys) is asked once more `fetchOffset.numRetries` times, with
`fetchOffset.retryIntervalMs` between two of them. Each lasts `kafka.default.api.timeout.ms` at most. With the defaults a query
waits for four minutes. What a node has answered for good is not asked again: a topic that does not exist, or an offset that is
gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_raftlake.errors import QuorumUnavailable
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected

if TYPE_CHECKING:
    from pyspark_raftlake.options import Patience
    from raftlake.client import Client
    from raftlake.client.sync_kv import Kv

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: With these codes nodes say that they cannot answer now.
_PASSING = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
#: The questions of a query that are asked again.
_QUESTIONS = frozenset(
    {
        "topics",
        "describe_topic",
        "topic_configs",
        "partitions",
        "list_offsets",
        "read_offset",
        "read_stable_offset",
        "kv get",
        "kv list",
    }
)


def is_outage(error: BaseException) -> bool:
    """Whether the quorum could not be asked, or could not say: it may be able to a little later."""
    from raftlake.client.errors import Disconnected, NoReachableNode

    if isinstance(error, RequestRejected):
        return error.code in _PASSING
    return isinstance(error, NoReachableNode | Disconnected)


def patiently(ask: Callable[[], T], patience: Patience, what: str, sleep: Callable[[float], None] = time.sleep) -> T:
    """What `ask` returns, asked again while the quorum is away. QuorumUnavailable in one line when patience is over."""
    asked_at = time.monotonic()
    for retry in range(patience.retries_max + 1):
        try:
            return ask()
        except RaftlakeError as error:
            if not is_outage(error):
                raise
            if retry == patience.retries_max:
                waited_ms = (time.monotonic() - asked_at) * 1000
                raise QuorumUnavailable(what, retry + 1, waited_ms, error, patience.setting) from None
            _log.warning("%s: %s; asked again in %d ms", what, error, patience.interval_ms)
            sleep(patience.interval_ms / 1000)
    raise AssertionError("a question is asked at least once")


class PatientClient:
    """A client whose questions about topics, offsets and keys outlive an outage. All else is the client's own."""

    def __init__(self, client: Client | Kv, patience: Patience, part: str = "") -> None:
        """`part` stands in front of the names of questions."""
        self._client = client
        self._patience = patience
        self._part = part

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        question = self._part + name
        if question == "kv":
            return PatientClient(found, self._patience, "kv ")
        if question not in _QUESTIONS:
            return found

        def ask(*args: Any, **kwargs: Any) -> Any:
            return patiently(lambda: found(*args, **kwargs), self._patience, question.replace("_", " "))

        return ask
