"""The remote tier on a real S3 server: the contract, lost answers, late commits, and what refusals of the store are called."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.tier_adoption_contract import TierAdoptionContract
from contract.tier_contract import GROUP, LINEAGE, TierContract, failure, rows_of, segment
from contract.tier_history_contract import TierHistoryContract
from historykit import fill
from raftlake.ports.tier import LineageEnd, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from s3kit import PATIENCE_SECONDS, Proxy, proxy_to, s3_server, s3_settings
from tierkit import DeltaWorld, shown_rows
from tiernodekit import Node
from waitkit import wait_until

pytestmark = [pytest.mark.process, pytest.mark.s3]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server(tmp_path_factory.mktemp("s3")) as port:
        yield port


@pytest.fixture
def proxy(port: int) -> Iterator[Proxy]:
    with proxy_to(port) as proxy:
        yield proxy


class TestDeltaTierOnS3(TierContract, TierHistoryContract, TierAdoptionContract):
    """Nodes are DeltaTiers in this process."""

    @pytest.fixture(autouse=True)
    def _port(self, port: int) -> None:
        self.port = port

    def make_world(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaWorld:
        return DeltaWorld(s3_settings(self.port, place.name))


def test_tables_are_read_and_verified(port: int, tmp_path: Path) -> None:
    settings = s3_settings(port, tmp_path.name)
    fill(settings, (2, 0))
    uri = table_uri(settings.uri, GROUP)
    history = TopicHistory(uri, settings.storage_options)
    assert sum(batch.num_rows for batch in history.read(2, 3, 20)) == 17

    def verify(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "raftlake", "tier", "verify", *arguments]
        environment = os.environ | dict(settings.storage_options) | options
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment)

    for arguments in (["--tier-uri", settings.uri], ["--tier-uri", settings.uri, "--topic", GROUP.topic], [uri]):
        outcome = verify(*arguments)
        assert outcome.returncode == 0 and "all is well" in outcome.stdout, outcome
    history.store.discard(["_raftlake/p2s2.aux", "partition=2/p2s1.parquet"])
    outcome = verify(uri)
    assert outcome.returncode == 1 and "2 findings" in outcome.stdout, outcome
    assert "partition=2/p2s1.parquet: the file is gone" in outcome.stdout and "_raftlake/p2s2.aux is missing" in outcome.stdout
    for arguments in (["--tier-uri", settings.uri], [uri]):
        refused = verify(*arguments, AWS_SECRET_ACCESS_KEY="wrong")
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1), refused
        assert "check the credentials" in refused.stderr


@pytest.mark.parametrize("lost", [1, 2])
def test_a_put_whose_answer_is_lost_is_one_commit(
    nodes: list[Node], port: int, proxy: Proxy, tmp_path: Path, lost: int
) -> None:
    """The client puts again and is told that the file is there: its own commit looks like another writer's."""
    node = Node(s3_settings(proxy.port, tmp_path.name))
    nodes.append(node)
    assert node.claim(5) == LineageEnd(None)
    proxy.statuses.clear()
    proxy.lose = lost
    requests = [segment(0, "a"), segment(6, "b")]
    for request in requests:
        made = node.copy(request)
        assert isinstance(made, RemoteSegment) and made.segment_id == request.segment_id, made
    assert proxy.statuses[:2] == [200, 412]
    assert shown_rows(s3_settings(port, tmp_path.name), LINEAGE) == rows_of(*requests)


@pytest.mark.parametrize("epoch", [5, 6], ids=["the same leader", "a later leader"])
def test_a_put_that_arrives_after_a_claim_has_no_effect(
    nodes: list[Node], port: int, proxy: Proxy, tmp_path: Path, epoch: int
) -> None:
    """The worker is gone, its request is still on the way."""
    slow, direct = s3_settings(proxy.port, tmp_path.name), s3_settings(port, tmp_path.name)
    node, other = Node(slow), Node(direct)
    nodes += [node, other]
    assert node.claim(5) == LineageEnd(None)
    proxy.statuses.clear()
    proxy.hold = True
    answers: list[RemoteSegment | TierError] = []
    node.tier.copy(segment(0, "a"), answers.append)
    assert proxy.held.wait(PATIENCE_SECONDS)
    node.workers[0].kill()
    while not answers:
        node.posted.get(timeout=PATIENCE_SECONDS)()
    assert failure(answers[0]) is TierFailure.UNKNOWN
    assert other.claim(epoch) == LineageEnd(None)
    proxy.release.set()
    wait_until(lambda: proxy.statuses, "the late put is answered", PATIENCE_SECONDS)
    assert proxy.statuses == [412]
    assert shown_rows(direct, LINEAGE) == []
    request = segment(0, "b", epoch=epoch)
    assert isinstance(other.copy(request), RemoteSegment)
    assert shown_rows(direct, LINEAGE) == rows_of(request)


def claim(settings: TierSettings) -> TierError:
    answer = DeltaTier(settings).claim(LINEAGE, Epoch(5))
    assert isinstance(answer, TierError)
    return answer


@pytest.mark.parametrize(
    ("option", "words"),
    [("AWS_ACCESS_KEY_ID", "access key"), ("AWS_SECRET_ACCESS_KEY", "signature")],
    ids=["a key that is none", "a wrong secret"],
)
def test_wrong_credentials_are_named(port: int, tmp_path: Path, option: str, words: str) -> None:
    answer = claim(s3_settings(port, tmp_path.name, **{option: "wrong"}))
    assert answer.failure is TierFailure.UNUSABLE
    assert words in answer.reason and "check the credentials" in answer.reason and tmp_path.name in answer.reason


def test_a_worker_takes_everything_from_the_environment_of_its_node(
    nodes: list[Node], port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = s3_settings(port, tmp_path.name)
    for name, value in told.storage_options.items():
        monkeypatch.setenv(name, value)
    plain = TierSettings(uri=told.uri, cluster_id=told.cluster_id, request_seconds=20)
    node = Node(plain)
    nodes.append(node)
    assert isinstance(node.copy(segment(0, "a")), RemoteSegment)
    assert shown_rows(told, LINEAGE) == rows_of(segment(0, "a"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    stranger = Node(plain)
    nodes.append(stranger)
    assert failure(stranger.claim(5)) is TierFailure.UNUSABLE


def test_a_bucket_that_is_none_is_named(port: int) -> None:
    settings = s3_settings(port, "x")
    answer = claim(TierSettings(uri="s3://nowhere/x", cluster_id="cluster", storage_options=settings.storage_options))
    assert answer.failure is TierFailure.UNUSABLE and "NoSuchBucket" in answer.reason and "check tier.uri" in answer.reason


def test_a_store_that_is_down_may_come_back(port: int, tmp_path: Path) -> None:
    with proxy_to(port) as proxy:
        gone = proxy.port
    answer = claim(s3_settings(gone, tmp_path.name, max_retries="0"))
    assert answer.failure is TierFailure.UNKNOWN and "s3://bucket/" in answer.reason
