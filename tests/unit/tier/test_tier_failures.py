"""Words of stores and of delta-rs as failures of the tier: what a retry mends, what not, and what was a conflict."""

from __future__ import annotations

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from contract.tier_contract import GROUP
from raftlake.ports.tier import Lineage, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
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
        (OSError("Operation not permitted (os error 1)"), TierFailure.UNUSABLE, "credentials"),
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


def test_words_leave_out_where_in_delta_rs_an_error_was_met() -> None:
    error = DeltaError("Kernel error: Json error: x\n   0: <unknown>\n  13: clone3\n             at ./clone3.S:81:0\n")
    assert words_of(error) == "Kernel error: Json error: x"
    assert words_of(DeltaError("at offset\n 10: more")) == "at offset 10: more"


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GET http://me:pa55@10.0.0.1:9/b/x failed", "GET http://10.0.0.1:9/b/x failed"),
        ("(https://a.blob.core.windows.net/c/p?sv=1&sig=pa55): refused", "(https://a.blob.core.windows.net/c/p): refused"),
        ("at s3://:pa55@b/x and s3://me:pa55@c/y", "at s3://b/x and s3://c/y"),
        ("abfss://c@a.dfs.core.windows.net/h is gone", "abfss://c@a.dfs.core.windows.net/h is gone"),
        ("no such file /a?b#c: is 1@h:2 gone?", "no such file /a?b#c: is 1@h:2 gone?"),
    ],
)
def test_words_have_no_secrets(text: str, words: str) -> None:
    assert words_of(OSError(text)) == words


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        (
            "s3://bucket/t",
            {"aws_endpoint_url": "http://me:pa55@127.0.0.1:1", "aws_region": "r", "aws_secret_access_key": "pa55"},
        ),
        ("az://c/t", {"azure_endpoint": "http://127.0.0.1:1", "azure_storage_sas_token": "sv=1&sig=pa55"}),
    ],
    ids=["s3", "azure"],
)
def test_what_delta_rs_says_of_a_store_has_no_secrets(uri: str, options: dict[str, str]) -> None:
    """It tells the address of the endpoint as it was given."""
    usual = {"aws_access_key_id": "a", "azure_storage_account_name": "a", "allow_http": "true", "max_retries": "0"}
    settings = TierSettings(uri=uri, cluster_id="c", storage_options=usual | options, request_seconds=20)
    answer = DeltaTier(settings).claim(Lineage(GROUP, 0), Epoch(1))
    assert isinstance(answer, TierError) and answer.failure is TierFailure.UNKNOWN
    assert "refused" in answer.reason and uri in answer.reason and "pa55" not in answer.reason
    assert "pa55" not in f"{settings!r} {settings}"
