"""History and log in one query, from either connector: rows are equal whatever their source."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectorkit import JAVA, Connector
from raftlake.client import LATEST_TIERED, NewRecord
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contract") / "tables"


@pytest.fixture(scope="module")
def tiered(tables: Path) -> Iterator[LocalQuorum]:
    """A quorum whose records are in their tables within a second."""
    from raftlake import LocalQuorum

    settings = {"tier.uri": str(tables), "tier.target.lag.ms": "1000"}
    with LocalQuorum(1, data_dir=tables.parent / "quorum", settings=settings) as quorum:
        yield quorum


@pytest.fixture(scope="module")
def client(tiered: LocalQuorum) -> Iterator[Client]:
    from raftlake import Client

    with Client(tiered.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="module")
def fill(client: Client) -> Callable[..., None]:
    """Appends numbers to both partitions of a topic, with headers, and waits until all of it is in the table."""

    def append(topic: str, first: int, last: int, *, waits: bool = True) -> None:
        numbers = range(first, last)
        client.append_many(
            topic,
            [NewRecord(value=b"%04d" % each, key=b"k", partition=each % 2, headers=[("n", b"%d" % each)]) for each in numbers],
        )
        ends = client.read_offset(topic)

        def is_copied() -> bool:
            copied = client.list_offsets(topic, dict.fromkeys(ends, LATEST_TIERED))
            return all(copied[number] + 1 >= end for number, end in ends.items())

        if waits:
            wait_until(is_copied, f"a table of all of {topic}", 90)

    return append


@pytest.fixture(scope="module")
def history(client: Client, fill: Callable[..., None]) -> str:
    """A topic of which the first 600 records are in three files of its table, and 100 more perhaps in the log alone."""
    client.create_topic("contract-history", 2)
    for first in (0, 200, 400):
        fill("contract-history", first, first + 200)
    fill("contract-history", 600, 700, waits=False)
    return "contract-history"


@pytest.fixture
def of_tiered(spark: SparkSession, tiered: LocalQuorum, connector: Connector) -> Connector:
    return Connector(spark, tiered.bootstrap_servers, connector.format)


def text(first: int, last: int) -> list[tuple[bytes]]:
    return [(b"%04d" % each,) for each in range(first, last)]


@pytest.mark.parametrize("tier", ["auto", "local"])
def test_everything_is_there_once(history: str, of_tiered: Connector, tier: str) -> None:
    assert sorted(of_tiered.rows(history, tier=tier)) == text(0, 700)
    assert of_tiered.read(history, tier=tier).count() == 700
    assert of_tiered.read(history, tier=tier, minPartitions="9").selectExpr("count(distinct value)").first() == (700,)


def test_the_table_alone(history: str, tables: Path, of_tiered: Connector) -> None:
    found = sorted(of_tiered.rows(history, tier="remote"))
    assert len(found) >= 600 and found == text(0, len(found))
    assert sorted(of_tiered.rows(history, tier="remote", tier__uri=str(tables))) >= text(0, 600)


def test_rows_are_equal(history: str, spark: SparkSession, tiered: LocalQuorum, both: dict[str, Connector]) -> None:
    options = {"includeHeaders": "true", "endingOffsets": f'{{"{history}":{{"0":200,"1":200}}}}'}
    connectors = [Connector(spark, tiered.bootstrap_servers, each) for each in both]
    rows = [
        [tuple(row) for row in each.read(history, tier=tier, **options).orderBy("partition", "offset").collect()]
        for each in connectors
        for tier in ("auto", "local", "remote")
    ]
    assert len(rows[0]) > 300 and all(each == rows[0] for each in rows)


def test_filters(history: str, of_tiered: Connector) -> None:
    frame = of_tiered.read(history)
    middle = frame.where("value = '0300'").select("offset", "timestamp").first()
    assert middle is not None
    at_or_behind = frame.where(frame.timestamp >= middle.timestamp).select("value").collect()
    before = frame.where(frame.timestamp < middle.timestamp).count()
    assert len(at_or_behind) + before == 700 and b"0300" in {bytes(row.value) for row in at_or_behind}
    assert frame.where(f"partition = 0 and offset = {middle.offset}").select("value").first() == (b"0300",)
    assert sorted(bytes(row.value) for row in frame.where("partition = 1").select("value").collect()) == [
        b"%04d" % each for each in range(1, 700, 2)
    ]
    since = {"startingTimestamp": str(int(middle.timestamp.timestamp() * 1000))}
    for tier in ("auto", "remote"):
        assert (b"0300",) in of_tiered.rows(history, tier=tier, **since)
        assert (b"0100",) not in of_tiered.rows(history, tier=tier, **since)


def test_a_stream_goes_over_the_seam(client: Client, fill: Callable[..., None], of_tiered: Connector, tmp_path: Path) -> None:
    name = f"contract-seam-{of_tiered.format == JAVA}".lower()
    client.create_topic(name, 2)
    fill(name, 0, 100)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    batches = of_tiered.batches(tmp_path, name, **options)
    assert sorted(value for values in batches.values() for value in values) == [f"{each:04}" for each in range(100)]
    fill(name, 100, 130, waits=False)
    batches = of_tiered.batches(tmp_path, name, **options)
    assert sorted(value for values in batches.values() for value in values) == [f"{each:04}" for each in range(100, 130)]


def test_aborted_transactions_stay_out(client: Client, fill: Callable[..., None], of_tiered: Connector) -> None:
    from confluent_kafka import Producer

    name = f"contract-aborted-{of_tiered.format == JAVA}".lower()
    client.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": of_tiered.servers, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, b"aborted", partition=0)
    assert producer.flush(30) == 0
    producer.abort_transaction()
    fill(name, 0, 4)
    for tier in ("auto", "remote"):
        assert sorted(of_tiered.rows(name, tier=tier)) == text(0, 4)
        both = of_tiered.rows(name, tier=tier, kafka__isolation__level="read_uncommitted")
        assert sorted(both) == [*text(0, 4), (b"aborted",)]


def test_a_file_that_is_gone(client: Client, fill: Callable[..., None], tables: Path, of_tiered: Connector) -> None:
    """The nodes stand in, since their disks have the records too. Without them there is an error."""
    name = f"contract-gone-{of_tiered.format == JAVA}".lower()
    client.create_topic(name, 2)
    fill(name, 0, 50)
    assert of_tiered.read(name).count() == 50
    (table,) = tables.glob(f"{name}-*")
    for file in table.glob("partition=*/*.parquet"):
        file.rename(file.with_suffix(".gone"))
    assert sorted(of_tiered.rows(name)) == text(0, 50)
    with pytest.raises(Exception, match=r"partition=\d"):
        of_tiered.read(name, tier="remote").count()
    shutil.rmtree(table)
    assert sorted(of_tiered.rows(name)) == text(0, 50)
    with pytest.raises(Exception, match=f"the table of topic '{name}' at .* cannot be read here"):
        of_tiered.read(name, tier="remote").count()


def test_what_cannot_be_is_said(history: str, tmp_path: Path, of_tiered: Connector, both: dict[str, Connector]) -> None:
    client_topic = "contract-untiered"
    with pytest.raises(Exception, match=f"Option 'tier.uri' is '{tmp_path}', and the table of topic '{history}' at .* cannot"):
        of_tiered.read(history, tier__uri=str(tmp_path)).count()
    untiered = both[of_tiered.format]
    from raftlake import Client as OtherClient

    with OtherClient(untiered.servers) as other:
        if not other.topics([client_topic]):
            other.create_topic(client_topic, 1)
            other.append(client_topic, b"v")
    with pytest.raises(Exception, match=f"Option 'tier' is 'remote', and topic '{client_topic}' has no remote tier"):
        untiered.read(client_topic, tier="remote").count()
    with pytest.raises(Exception, match=f"and topic '{client_topic}' has no remote tier: its log does not go on where"):
        untiered.read(client_topic, tier__uri=str(tmp_path)).count()
    assert untiered.read(client_topic).count() == 1
