"""What cannot be read: the same words from both connectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectorkit import JAVA, PYTHON, Connector

if TYPE_CHECKING:
    from raftlake import Client

pytestmark = pytest.mark.spark
TOPIC = "contract-errors"


@pytest.fixture(scope="module", autouse=True)
def topic(client: Client) -> str:
    client.create_topic(TOPIC, 2)
    client.append(TOPIC, b"0", partition=0)
    return TOPIC


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingoffset": "earliest"}, "Unknown option 'startingoffset' for raftlake; did you mean 'startingOffsets'?"),
        ({"xyzzy": "1"}, "Unknown option 'xyzzy' for raftlake"),
        ({"subscribe": "contract-error"}, "Topic 'contract-error' does not exist; existing topics: contract-errors"),
        ({"subscribe": ","}, "Option 'subscribe' is ',', expected topics separated by commas"),
        ({"startingOffsets": '{"contract-errors":{"0":0,"7":0}}'}, "names partitions that do not exist: contract-errors-7"),
        ({"startingOffsets": '{"other":{"0":0}}'}, "Option 'startingOffsets' names what the query does not read: other"),
        ({"startingOffsets": "first"}, "Option 'startingOffsets' is 'first', expected earliest, latest or offsets as"),
        ({"endingOffsets": '{"contract-errors":{"0":-3}}'}, "Topic 'contract-errors', partition 0: -3 is not an offset"),
        ({"startingTimestamp": "now"}, "Option 'startingTimestamp' is 'now', expected milliseconds since 1970"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "Only one of the following options can be specified"),
        ({"tier": "cold"}, "Option 'tier' is 'cold', expected one of auto, local, remote"),
        ({"tier.uri": "s3://me:secret@bucket/t?sig=1"}, "expected a place without password and query"),
        ({"consistency": "strong"}, "Option 'consistency' is 'strong', expected one of committed, linearizable"),
        ({"minPartitions": "0"}, "Option 'minPartitions' is '0', expected a whole number above 0"),
        ({"fetchOffset.numRetries": "-1"}, "Option 'fetchOffset.numRetries' is '-1', expected a whole number, 0 or above"),
        ({"maxTriggerDelay": "soon"}, "Option 'maxTriggerDelay' is 'soon', expected a duration such as 15m or 500ms"),
        ({"includeHeaders": "yes"}, "Option 'includeHeaders' is 'yes', expected true or false"),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, "The value of minOffsetsPerTrigger(2) is higher than"),
        ({"kafka.auto.offset.reset": "earliest"}, "Option 'kafka.auto.offset.reset' is not supported: set the source option"),
        ({"kafka.ssl.keystore.location": "x"}, "Option 'kafka.ssl.keystore.location' is not supported: raftlake's listeners"),
        ({"kafka.security.protocol": "SSL"}, "Option 'kafka.security.protocol' is not supported"),
        ({"kafka.group.idd": "g"}, "Unknown option 'kafka.group.idd' for raftlake; did you mean 'kafka.group.id'?"),
        ({"assign": '{"contract-errors":[0]}'}, "Only one of the following options can be specified"),
        ({"bootstrap.servers": "other:1"}, "Only one of the following options can be specified"),
    ],
)
def test_load_says_what_is_wrong(both: dict[str, Connector], options: dict[str, str], words: str) -> None:
    said: dict[str, str] = {}
    for name, connector in both.items():
        with pytest.raises(Exception, match=re.escape(words)) as raised:
            connector.read(**{"subscribe": TOPIC, **options})
        said[name] = first_line_with(words, str(raised.value))
        assert "secret" not in str(raised.value)
    assert said[PYTHON] == said[JAVA]


def first_line_with(words: str, told: str) -> str:
    """From the words on, as far as the line goes."""
    line = next(line for line in told.splitlines() if words in line)
    return line[line.index(words) :].rstrip()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on raftlake"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on raftlake"),
        ({"startingOffsets": '{"contract-errors":{"0":-1,"1":0}}'}, "startingOffsets for contract-errors-0 can't be latest"),
        (
            {"startingOffsets": '{"contract-errors":{"0":999,"1":0}}'},
            "startingOffsets for contract-errors-0 is 999, but the log",
        ),
        (
            {"endingOffsets": '{"contract-errors":{"0":999,"1":0}}'},
            "endingOffsets for contract-errors-0 is 999, but the log ends",
        ),
        (
            {"startingOffsets": '{"contract-errors":{"0":0}}'},
            "If startingOffsets contains specific offsets, you must specify all",
        ),
        ({"startingTimestamp": "99999999999999"}, "No offset matched from request of topic-partition contract-errors-0"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "The starting timestamp 2 is after the ending timestamp 1"),
    ],
)
def test_an_action_says_what_is_wrong(both: dict[str, Connector], options: dict[str, str], words: str) -> None:
    for connector in both.values():
        with pytest.raises(Exception, match=re.escape(words)):
            connector.read(TOPIC, **options).count()


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"endingOffsets": "latest"}, None, "ending offset not valid in streaming queries"),
        ({"endingTimestamp": "1700000000000"}, None, "ending timestamp not valid in streaming queries"),
        ({}, "value string", "raftlake source has a fixed schema and cannot be set with a custom one"),
    ],
)
def test_a_stream_says_what_is_wrong(
    connector: Connector, options: dict[str, str], schema: str | None, words: str, tmp_path: Path
) -> None:
    reader = connector.spark.readStream.format(connector.format).option("kafka.bootstrap.servers", connector.servers)
    reader = reader.options(subscribe=TOPIC, **options)

    def run() -> None:
        frame = (reader if schema is None else reader.schema(schema)).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination(90)

    with pytest.raises(Exception, match=words):
        run()


@pytest.mark.parametrize(
    "trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}], ids=["availableNow", "continuous"]
)
@pytest.mark.parametrize(
    ("options", "schema", "kind"),
    [
        ({"endingOffsets": "latest"}, None, "raftlake.errors.ConfigError: ending offset not valid"),
        ({}, "value string", "pyspark_raftlake.errors.InvalidSchema: raftlake source has a fixed schema"),
    ],
)
def test_the_stack_of_python_begins_and_ends_with_the_cause(
    both: dict[str, Connector], options: dict[str, str], schema: str | None, kind: str, trigger: dict[str, Any], tmp_path: Path
) -> None:
    """Spark's own code raises an UnboundLocalError where the reader of a stream cannot be made."""
    reader = both[PYTHON].spark.readStream.format(PYTHON).option("kafka.bootstrap.servers", both[PYTHON].servers)
    reader = reader.options(subscribe=TOPIC, **options)
    frame = (reader if schema is None else reader.schema(schema)).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(**trigger).start()
    with pytest.raises(Exception, match="terminated with exception") as raised:
        query.awaitTermination(90)
    assert "UnboundLocalError" not in str(raised.value)
    # Spark's own words, with the ids of query and run, take 243 characters.
    assert 0 < str(raised.value).find(kind) < 300
    said = [line for line in str(raised.value).splitlines() if line.strip() and not line.startswith("===")]
    errors = [line for line in said if "Error" in line or line.startswith(kind)]
    assert errors[-1].startswith(kind), said


def test_a_schema_of_the_users_own(connector: Connector) -> None:
    with pytest.raises(Exception, match="fixed schema and cannot be set with a custom one"):
        connector.read(TOPIC, schema="value string").count()


def test_no_reachable_node(connector: Connector) -> None:
    with pytest.raises(Exception, match=r"no reachable node among 127\.0\.0\.1:9"):
        Connector(connector.spark, "127.0.0.1:9", connector.format).read("t")
