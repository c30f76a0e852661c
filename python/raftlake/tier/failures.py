"""Errors of stores, of delta-rs and of damaged batches as `TierError`: which kind, and a reason in one line.

A store's own words stand in the reason. Where they say that a retry does not help, the failure is UNUSABLE.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from raftlake.errors import RaftlakeError, without_secrets
from raftlake.ports.tier import TierError, TierFailure

#: What a call to a store raises when it does not go well. pyarrow's errors are of these kinds or its own.
STORE_ERRORS: Final = (DeltaError, OSError, ValueError, pa.ArrowException)
_REASON_CHARS_MAX = 300

#: What to do about a file that is gone or damaged.
RESTORE: Final = "put it back from a copy of the store"

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
    "operation not permitted",
)
_PLACE = ("nosuchbucket", "bucket does not exist", "containernotfound", "not a directory", "unsupported", "no such bucket")
#: The answer of a store that speaks S3 or its like.
_STORE_ANSWER = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
#: Where in its own code delta-rs met an error.
_STACK = re.compile(r"\n +0: .*", re.S)
#: A commit of somebody else came first: this one had no effect. The last one is that of a commit that may not go behind others.
_CONFLICT = re.compile(
    r"concurrent transaction|metadata changed|protocol changed|concurrent append|concurrent delete"
    r"|^failed to commit transaction: 0$",
    re.I,
)


class TierProblem(RaftlakeError):
    """A call to the tier fails, and this is its answer."""

    def __init__(self, failure: TierFailure, reason: str) -> None:
        super().__init__(reason)
        self.error = TierError(failure, reason)


def words_of(error: BaseException) -> str:
    """What a store answered, or the text of an error in one line of bounded length: its beginning, and the cause at its end.
    URLs in it are without secrets: endpoints may have a password, and addresses of Azure a signature."""
    if (answer := _STORE_ANSWER.search(str(error))) is not None:
        return " ".join(f"{answer[1]}: {answer[2]}".split())[:_REASON_CHARS_MAX]
    text = _STACK.sub("", re.sub(r"\x1b\[[0-9;]*m", "", str(error)))
    text = without_secrets(text.replace("↳", "-"))
    text = " ".join(text.split()) or type(error).__name__
    half = _REASON_CHARS_MAX // 2
    return text if len(text) <= _REASON_CHARS_MAX else f"{text[: half - 1]}…{text[-half:]}"


def advice_on(error: BaseException) -> str:
    """What an operator can do about an error that a retry does not mend; "" where one may."""
    text = str(error).lower()
    if isinstance(error, PermissionError) or any(sign in text for sign in _ACCESS):
        return "check the credentials and rights of the node's user there, and the tier's storage options"
    return "check tier.uri" if any(sign in text for sign in _PLACE) else ""


def problem_of(error: BaseException, doing: str, uri: str) -> TierProblem:
    """The answer to a call that could not do something before any commit was tried: it had no effect."""
    reason = f"cannot {doing} {uri}: {words_of(error)}"
    if advice := advice_on(error):
        return TierProblem(TierFailure.UNUSABLE, f"{reason}: {advice}")
    return TierProblem(TierFailure.UNKNOWN, reason)


def is_conflict(error: BaseException) -> bool:
    """delta-rs refused a commit because of another one, which is in the table."""
    return bool(_CONFLICT.search(str(error)))
