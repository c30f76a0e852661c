"""Errors of stores, of delta-rs and of damaged batches as `TierError`: which kind, and a reason in one line.

A store's own words stand in the reason. Where they say that a retry does not help, the failure is UNUSABLE.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from raftlake.errors import RaftlakeError
from raftlake.ports.tier import TierError, TierFailure

#: What a call to a store raises when it does not go well. pyarrow's errors are of these kinds or its own.
STORE_ERRORS: Final = (DeltaError, OSError, ValueError, pa.ArrowException)
_REASON_CHARS_MAX = 300

_ACCESS = (
    "permission denied",
    "permissiondenied",
    "access denied",
    "accessdenied",
    "forbidden",
    "unauthorized",
    "unauthenticated",
    "privileges",
    "credential",
    "access key",
    "invalidaccesskeyid",
    "signaturedoesnotmatch",
    "security token",
    "read-only file system",
)
_PLACE = ("nosuchbucket", "bucket does not exist", "containernotfound", "not a directory", "unsupported", "no such bucket")
#: The answer of a store that speaks S3 or its like.
_STORE_ANSWER = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
#: A commit of somebody else came first: this one had no effect.
_CONFLICT = re.compile(r"concurrent transaction|metadata changed|protocol changed|concurrent append|concurrent delete", re.I)


class TierProblem(RaftlakeError):
    """A call to the tier fails, and this is its answer."""

    def __init__(self, failure: TierFailure, reason: str) -> None:
        super().__init__(reason)
        self.error = TierError(failure, reason)


def words_of(error: BaseException) -> str:
    """What a store answered, or the text of an error in one line of bounded length: its beginning, and the cause at its end."""
    if (answer := _STORE_ANSWER.search(str(error))) is not None:
        return " ".join(f"{answer[1]}: {answer[2]}".split())[:_REASON_CHARS_MAX]
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).replace("↳", "-")
    text = " ".join(text.split()) or type(error).__name__
    half = _REASON_CHARS_MAX // 2
    return text if len(text) <= _REASON_CHARS_MAX else f"{text[: half - 1]}…{text[-half:]}"


def problem_of(error: BaseException, doing: str, uri: str) -> TierProblem:
    """The answer to a call that could not do something before any commit was tried: it had no effect."""
    words = words_of(error)
    text = str(error).lower()
    if isinstance(error, PermissionError) or any(sign in text for sign in _ACCESS):
        advice = "check the credentials and rights of the node's user there, and the tier's storage options"
        return TierProblem(TierFailure.UNUSABLE, f"cannot {doing} {uri}: {words}: {advice}")
    if any(sign in text for sign in _PLACE):
        return TierProblem(TierFailure.UNUSABLE, f"cannot {doing} {uri}: {words}: check tier.uri")
    return TierProblem(TierFailure.UNKNOWN, f"cannot {doing} {uri}: {words}")


def is_conflict(error: BaseException) -> bool:
    """delta-rs refused a commit because of another one, which is in the table."""
    return bool(_CONFLICT.search(str(error)))
