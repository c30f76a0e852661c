"""Words of stores and of delta-rs as failures of the tier: what a retry mends, what not, and what was a conflict."""

from __future__ import annotations

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from raftlake.ports.tier import TierFailure
from raftlake.tier.failures import is_conflict, problem_of, words_of


@pytest.mark.parametrize(
    ("error", "failure", "advice"),
    [
        (PermissionError("x"), TierFailure.UNUSABLE, "credentials"),
        (OSError("Generic S3 error: ... <Code>AccessDenied</Code>"), TierFailure.UNUSABLE, "credentials"),
        (OSError("InvalidAccessKeyId"), TierFailure.UNUSABLE, "credentials"),
        (OSError("The request signature: SignatureDoesNotMatch"), TierFailure.UNUSABLE, "credentials"),
        (OSError("an error occurred while loading credentials"), TierFailure.UNUSABLE, "credentials"),
        (OSError("The operation lacked the necessary privileges to complete"), TierFailure.UNUSABLE, "credentials"),
        (OSError("No user exists with the provided access key ID."), TierFailure.UNUSABLE, "credentials"),
        (OSError("Read-only file system (os error 30)"), TierFailure.UNUSABLE, "credentials"),
        (DeltaError("<Code>NoSuchBucket</Code>"), TierFailure.UNUSABLE, "tier.uri"),
        (DeltaError("Not a directory (os error 20)"), TierFailure.UNUSABLE, "tier.uri"),
        (OSError("error sending request: connection refused"), TierFailure.UNKNOWN, ""),
        (DeltaError("500 Internal Server Error"), TierFailure.UNKNOWN, ""),
        (OSError("No space left on device (os error 28)"), TierFailure.UNKNOWN, ""),
    ],
    ids=lambda value: str(value)[:30],
)
def test_kinds(error: Exception, failure: TierFailure, advice: str) -> None:
    problem = problem_of(error, "write to the table", "s3://bucket/t")
    assert problem.error.failure is failure
    assert problem.error.reason.startswith("cannot write to the table s3://bucket/t: ")
    assert advice in problem.error.reason


def test_words_are_one_line_without_colours_and_bounded() -> None:
    error = OSError("Kernel error\n  \x1b[31m↳\x1b[0m an error occurred\n   \x1b[31m↳\x1b[0m forbidden")
    assert words_of(error) == "Kernel error - an error occurred - forbidden"
    assert words_of(OSError()) == "OSError"
    long = words_of(OSError("what" + "x" * 1000 + "cause"))
    assert len(long) == 300 and long.startswith("what") and long.endswith("cause")
    answer = (
        "Kernel error\n404 Not Found\n<Error><Code>NoSuchBucket</Code><Message>The bucket\nis none.</Message><Id>x</Id></Error>"
    )
    assert words_of(OSError(answer)) == "NoSuchBucket: The bucket is none."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Failed to commit transaction: Concurrent transaction failed.", True),
        ("Metadata changed since last commit.", True),
        ("Failed to commit transaction: Generic S3 error: timed out", False),
        ("Failed to commit transaction: Error interacting with object store: forbidden", False),
    ],
)
def test_conflicts(text: str, expected: bool) -> None:
    assert is_conflict(CommitFailedError(text)) is expected
