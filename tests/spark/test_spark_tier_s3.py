"""Spark, with Delta's own classes and Hadoop's S3 client, reads on a real S3 server what the tier wrote."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from contract.tier_contract import GROUP, LINEAGE, rows_of, segment
from deltaspark import DELTA, Session
from raftlake.ports.tier import RemoteSegment, TierError
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from raftlake.tier.table_reads import TableReads
from raftlake.tier.verify import verify_table
from raftlake.tier.verify_sql import CHECKS
from s3kit import KEY, PATIENCE_SECONDS, SECRET, Proxy, proxy_to, s3_server, s3_settings
from tierkit import shown_rows

pytestmark = [pytest.mark.spark, pytest.mark.s3]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server(tmp_path_factory.mktemp("s3")) as port:
        yield port


@pytest.fixture
def proxy(port: int) -> Iterator[Proxy]:
    with proxy_to(port) as proxy:
        yield proxy


def session(port: int, settings: TierSettings) -> Session:
    config = {
        "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{port}",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET,
    }
    return Session(table_uri(settings.uri, GROUP).replace("s3://", "s3a://"), config, (*DELTA, "spark-s3-3.5.0"))


def test_spark_reads_streams_and_checks_a_table_on_s3(port: int, tmp_path: Path) -> None:
    settings = s3_settings(port, tmp_path.name)
    tier = DeltaTier(settings)
    for base in (0, 6):
        assert isinstance(tier.copy(segment(base, f"s{base}")), RemoteSegment)
    spark = session(port, settings)
    try:
        assert spark.ask("partitions") == [[2, 12, 0, 11]]
        assert spark.ask("stream") == 12
        assert isinstance(tier.copy(segment(12, "s12")), RemoteSegment)
        assert spark.ask("partitions") == [[2, 18, 0, 17]]
        assert spark.ask("stream") == 18
        assert spark.ask("sql") == [0] * len(CHECKS)
    finally:
        spark.close()


def test_optimize_of_spark_may_take_a_copy_away_and_the_read_back_tells(port: int, proxy: Proxy, tmp_path: Path) -> None:
    """delta-spark commits on S3 without a condition: it replaces the commit that the tier made meanwhile. docs/tier.md says so.
    Nothing is deleted locally before the read-back."""
    settings = s3_settings(port, tmp_path.name)
    tier = DeltaTier(settings)
    for base in (0, 6):
        assert isinstance(tier.copy(segment(base, f"s{base}")), RemoteSegment)
    spark = session(proxy.port, settings)
    try:
        assert spark.ask("partitions") == [[2, 12, 0, 11]]
        proxy.hold = True
        asking = threading.Thread(target=spark.ask, args=("optimize",))
        asking.start()
        assert proxy.held.wait(PATIENCE_SECONDS)
        third = tier.copy(segment(12, "s12"))
        assert isinstance(third, RemoteSegment)
        proxy.release.set()
        asking.join(PATIENCE_SECONDS)
        assert proxy.statuses == [200]
        assert spark.ask("partitions") == [[2, 12, 0, 11]]
    finally:
        spark.close()
    found = TableReads(settings).check(LINEAGE, third)
    assert isinstance(found, TierError) and "s12.parquet" in found.reason, found


def test_optimize_of_delta_rs_leaves_each_copy(port: int, proxy: Proxy, tmp_path: Path) -> None:
    settings = s3_settings(port, tmp_path.name)
    tier = DeltaTier(settings)
    requests = [segment(base, f"s{base}") for base in (0, 6)]
    for request in requests:
        assert isinstance(tier.copy(request), RemoteSegment)
    slow = s3_settings(proxy.port, tmp_path.name)
    table = DeltaTable(table_uri(slow.uri, GROUP), storage_options=slow.storage_options)
    proxy.hold = True
    asking = threading.Thread(target=table.optimize.compact)
    asking.start()
    assert proxy.held.wait(PATIENCE_SECONDS)
    requests.append(segment(12, "s12"))
    assert isinstance(tier.copy(requests[-1]), RemoteSegment)
    proxy.release.set()
    asking.join(PATIENCE_SECONDS)
    assert proxy.statuses[:2] == [412, 200], "the version was taken, and the next one is free"
    history = TopicHistory(table_uri(settings.uri, GROUP), settings.storage_options)
    assert [(file.offset_min, file.offset_max) for file in history.files(2)] == [(0, 11), (12, 17)]
    assert sorted(shown_rows(settings, LINEAGE)) == rows_of(*requests)
    assert verify_table(history).findings == ()
