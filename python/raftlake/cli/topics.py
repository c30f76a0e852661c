"""Commands on topics and their records: topics, produce, consume.

Lines are records: what goes in comes out byte for byte, so that the commands fit into pipes; only --json interprets them.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftlake.cli.output import (
    BOOTSTRAP_DEFAULT,
    TIMEOUT_MS_DEFAULT,
    AsJson,
    BootstrapServer,
    TimeoutMs,
    as_bytes,
    as_text,
    connect,
    counted,
    note,
    print_json,
    print_table,
    text_facts,
)
from raftlake.cli.produce import chunks, produce_lines
from raftlake.errors import ConfigError, RaftlakeError, WrongState, printable

if TYPE_CHECKING:
    from raftlake.client import Client, Record, TopicDescription

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="NAME=VALUE", help="A config of the topic, such as retention.ms=3600000 (may be repeated)."
    ),
]


@app.command("create")
def create(
    topic: TopicName,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many partitions (default: 1).")] = None,
    config: Configs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Success when it exists already.")] = False,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create a topic and wait until every partition has a leader."""
    configs = parse_configs(config)
    with connect(bootstrap_server, timeout_ms) as client:
        described = client.create_topic(topic, partitions or 1, configs, exist_ok=if_not_exists)
        # A node that has not heard of the topic yet says nothing of it: then it is new.
        own = client.own_topic_configs([topic]).get(topic, configs) if configs and if_not_exists else configs
    require_count(described, partitions)
    require_configs(topic, own, configs)
    if as_json:
        print_json({**topic_facts(described), "configs": own})
    else:
        print(f"topic {described.name} has {counted(len(described.partitions), 'partition')}")


def require_count(described: TopicDescription, partitions: int | None) -> None:
    """WrongState where a topic that exists has another number of partitions than was asked for (None: any)."""
    has = len(described.partitions)
    if partitions is None or partitions == has:
        return
    advice = "partitions are never taken away"
    if partitions > has:
        advice = f"`raftlake topics alter {described.name} --partitions {partitions}` adds the others"
    raise WrongState(f"topic {described.name!r} exists with {counted(has, 'partition')}, not {partitions}: {advice}")


def parse_configs(given: list[str] | None) -> dict[str, str]:
    """The configs of `--config NAME=VALUE`. Raises typer.BadParameter."""
    found: dict[str, str] = {}
    for each in given or []:
        name, separator, value = each.partition("=")
        if not separator or not name.strip():
            raise typer.BadParameter(f"--config {printable(each)}: accepted is NAME=VALUE")
        if name.strip() in found:
            raise typer.BadParameter(f"--config {printable(name.strip())} is given more than once")
        found[name.strip()] = value.strip()
    return found


def require_configs(topic: str, own: dict[str, str], asked: dict[str, str]) -> None:
    """WrongState where a topic that exists says something else than was asked for."""
    differing = {name: value for name, value in asked.items() if own.get(name) != value}
    if differing:
        named = " ".join(f"--config {name}={value}" for name, value in differing.items())
        has = ", ".join(f"{name}={own[name]}" if name in own else f"no {name}" for name in differing)
        raise WrongState(f"topic {topic!r} exists with {has}: `raftlake topics alter {topic} {named}` changes that")


@app.command("alter")
def alter(
    topic: TopicName,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many partitions it shall have: more than it has.")] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", metavar="NAME", help="Let the topic follow the nodes' settings here (may be repeated)."
        ),
    ] = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Change a topic's configs, or add partitions and wait until all of them have leaders."""
    configs, deleted = parse_configs(config), delete_config or []
    if partitions is None and not configs and not deleted:
        raise typer.BadParameter("nothing to change: accepted are --partitions, --config and --delete-config")
    changed = [f"topic {topic} has {name}={value}" for name, value in configs.items()]
    changed += [f"topic {topic} follows the nodes in {name}" for name in deleted]
    with connect(bootstrap_server, timeout_ms) as client:
        if changed:
            if partitions is not None:
                require_more(client.describe_topic(topic), partitions)
            client.alter_topic_configs(topic, configs, delete=deleted)
        try:
            described = client.describe_topic(topic) if partitions is None else client.create_partitions(topic, partitions)
        except RaftlakeError:
            # The error is about the partitions; what happened before it has to be known too.
            for line in changed:
                note(line)
            raise
    if as_json:
        print_json({**topic_facts(described), "set": configs, "deleted": deleted})
        return
    if partitions is not None:
        print(f"topic {described.name} has {counted(len(described.partitions), 'partition')}")
    for line in changed:
        print(line)


def require_more(found: TopicDescription, count: int) -> None:
    """WrongState where the topic has as many partitions already."""
    has = len(found.partitions)
    if has >= count:
        what = f"topic {found.name!r} has {counted(has, 'partition')}"
        raise WrongState(f"nothing was changed: {what}, and {count} would be no increase")


def configs_line(own: dict[str, str]) -> str:
    """A topic's own configs in a line."""
    return ",".join(f"{name}={value}" for name, value in sorted(own.items())) or "of the nodes"


@app.command("list")
def list_(
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List the topics; with --json also what each says over the settings of the nodes."""
    with connect(bootstrap_server, timeout_ms) as client:
        topics = client.topics()
        own = client.own_topic_configs([topic.name for topic in topics]) if as_json else {}
    if as_json:
        print_json(
            [{"name": topic.name, "partitions": len(topic.partitions), "configs": own.get(topic.name, {})} for topic in topics]
        )
    else:
        for topic in topics:
            print(topic.name)


@app.command("describe")
def describe(
    topic: TopicName,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show a topic's own configs, and its partitions: leader, epoch, replicas, first offset, and the end of what is replicated
    (records of open transactions too)."""
    from raftlake.client import EARLIEST, LATEST, IsolationLevel

    with connect(bootstrap_server, timeout_ms) as client:
        described = client.describe_topic(topic)
        partitions = [partition.partition for partition in described.partitions]
        starts = client.list_offsets(topic, dict.fromkeys(partitions, EARLIEST))
        ends = client.list_offsets(topic, dict.fromkeys(partitions, LATEST), isolation=IsolationLevel.READ_UNCOMMITTED)
        own = client.own_topic_configs([topic]).get(topic, {})
    facts = {**topic_facts(described), "configs": own}
    for row in facts["partitions"]:
        row |= {"startOffset": starts[row["partition"]], "endOffset": ends[row["partition"]]}
    if as_json:
        print_json(facts)
        return
    print(f"Topic: {facts['name']}  TopicId: {facts['topicId']}  Partitions: {len(partitions)}  Configs: {configs_line(own)}")
    print_table(
        ["Partition", "Leader", "LeaderEpoch", "Replicas", "StartOffset", "EndOffset"],
        [
            [
                str(row["partition"]),
                str(row["leaderId"]),
                str(row["leaderEpoch"]),
                ",".join(map(str, row["replicas"])),
                str(row["startOffset"]),
                str(row["endOffset"]),
            ]
            for row in facts["partitions"]
        ],
    )


@app.command("delete")
def delete(
    topic: TopicName,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
) -> None:
    """Delete a topic and its data."""
    with connect(bootstrap_server, timeout_ms) as client:
        client.delete_topic(topic)
    print(f"topic {topic} is deleted")


@app.command("delete-records")
def delete_records(
    topic: TopicName,
    partition: Annotated[int, typer.Option(min=0, help="Of this partition.")],
    offset: Annotated[int, typer.Option(min=-1, help="Delete the records below this offset (-1: all that are committed).")],
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Delete the records of a partition below an offset, for good."""
    with connect(bootstrap_server, timeout_ms) as client:
        known = client.partitions(topic)
        require_partition(topic, partition, known)
        start = client.delete_records(topic, {partition: offset})[partition]
    if as_json:
        print_json({"topic": topic, "partition": partition, "startOffset": start})
    else:
        print(f"topic {topic} partition {partition} begins at offset {start}")


def produce(
    topic: TopicName,
    partition: Annotated[int | None, typer.Option(min=0, help="Append to this partition.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Lines are KEY, then this text, then VALUE (default: no keys).")
    ] = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
) -> None:
    """Append each line of standard input as one record; ends when all are acknowledged."""
    if key_separator == "":
        raise typer.BadParameter("must not be empty", param_hint="--key-separator")
    with connect(bootstrap_server, timeout_ms) as client:
        # A missing topic, partition or quorum is said before a line is read, and also when none comes.
        require_partition(topic, partition, client.partitions(topic))
        count = produce_lines(client, topic, chunks(sys.stdin.buffer, one_by_one=sys.stdin.isatty()), key_separator, partition)
    note(f"{counted(count, 'record')} appended")


def consume(
    topic: TopicName,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record, not at the end.")
    ] = False,
    linearizable: Annotated[
        bool,
        typer.Option(
            "--linearizable", help="Print every record that was acknowledged before now, from the first on, then end."
        ),
    ] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    max_messages: Annotated[int | None, typer.Option(min=1, help="End after so many records.")] = None,
    key_separator: Annotated[str | None, typer.Option(metavar="TEXT", help="Print KEY, this text, then VALUE.")] = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Print records as they come, one line each, until Ctrl-C (or --max-messages, or the end with --linearizable)."""
    with connect(bootstrap_server, timeout_ms) as client:
        records = _records(client, topic, partition, from_beginning=from_beginning, linearizable=linearizable)
        for count, record in enumerate(records, start=1):
            if as_json:
                _write_line(json_line(record))
            elif key_separator is not None:
                _write_line((record.key or b"") + as_bytes(key_separator) + (record.value or b""))
            else:
                _write_line(record.value or b"")
            if count == max_messages:
                return


def _records(
    client: Client, topic: str, partition: int | None, *, from_beginning: bool, linearizable: bool
) -> Iterator[Record]:
    from raftlake.client import EARLIEST, LATEST

    known = client.partitions(topic)
    require_partition(topic, partition, known)
    partitions = known if partition is None else [partition]
    if not linearizable:
        yield from client.stream(topic, partitions=partitions, start=EARLIEST if from_beginning else LATEST)
        return
    # The ends are proven by the leader, so nothing acknowledged before this line is left out. Every
    # replica may serve the records.
    starts = client.list_offsets(topic, dict.fromkeys(partitions, EARLIEST))
    ends = client.read_stable_offset(topic, partitions)
    for index in partitions:
        yield from _read_to(client, topic, index, starts[index], ends[index])


def require_partition(topic: str, partition: int | None, known: Collection[int]) -> None:
    """ConfigError for a partition that the topic does not have."""
    if partition is not None and partition not in known:
        raise ConfigError(f"--partition: topic {topic!r} has {counted(len(known), 'partition')}, not {partition}")


def _read_to(client: Client, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
    from raftlake.client.reader import records_from

    offset = start
    while offset < end:
        fetched = client.fetch_raw(topic, partition, offset, limit_offset=end)
        yield from (record for record in records_from(fetched, topic, partition, offset) if record.offset < end)
        offset = fetched.next_offset


def _write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def json_line(record: Record) -> bytes:
    """One record as a line of JSON; bytes that are not UTF-8 are given as base64 beside the text."""
    import json

    facts: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        facts |= text_facts(name, data)
    if record.headers:
        facts["headers"] = [{"key": name, "value": as_text(value)} for name, value in record.headers]
    return json.dumps(facts, ensure_ascii=False).encode()


def topic_facts(described: TopicDescription) -> dict[str, Any]:
    from raftlake.wire.ids import id_to_text

    return {
        "name": described.name,
        "topicId": id_to_text(described.topic_id),
        "partitions": [
            {
                "partition": partition.partition,
                "leaderId": partition.leader_id,
                "leaderEpoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
            }
            for partition in described.partitions
        ],
    }
