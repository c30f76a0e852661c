"""What brokers' disks, the Delta table, what left it, and the quorum's keys show of one partition, as KIP-405's tables do.

A line is one record: its offset, what it is, and its leader epoch. Disks are read as files, tables by delta-rs and pyarrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable, QueryBuilder

from brokerkit import TOPIC, Broker, raftlake, sequences, wait_until
from raftlake import Client
from raftlake.errors import ErrorCode
from raftlake.kv.keys import tier_key
from raftlake.ports.tier import RemoteSegment
from raftlake.storage.epochs import FILE_NAME
from raftlake.tier.entries import Tiered, decode_segment, decode_tiered
from raftlake.wire import producer_snapshot
from raftlake.wire.batches import decode_records, iterate_headers
from raftlake.wire.control import parse_control_record

COLUMNS = '"offset", "leader_epoch", "kind", "key", "value", "incarnation"'


class Epochs:
    """The names of leader epochs: LE-0, LE-1 and so on."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def call(self, epoch: int, name: str) -> None:
        assert self._names.setdefault(epoch, name) == name, (epoch, name, self._names)

    def name(self, epoch: int) -> str:
        return self._names.get(epoch, f"epoch {epoch}")

    def number(self, name: str) -> int:
        return next(epoch for epoch, known in self._names.items() if known == name)

    def sequence(self, entries: Sequence[tuple[int, int]]) -> str:
        """A leader epoch sequence, as in `LE-0,0 LE-1,3`."""
        return " ".join(f"{self.name(epoch)},{offset}" for epoch, offset in entries)


def what(is_control: bool, key: bytes | None, value: bytes | None) -> str:
    return type(parse_control_record(key, value)).__name__ if is_control else (value or b"").decode()


# --- the disk of a broker


def log_data(broker: Broker) -> bytes:
    """All segments of the local log, one after the other, without the room behind them that is reserved."""
    return b"".join(written(path.read_bytes()) for path in sorted(broker.partition.glob("0*.log")))


def written(data: bytes) -> bytes:
    """Up to the first batch of zeros."""
    position = 0
    while size := int.from_bytes(data[position + 8 : position + 12], "big"):
        position += 12 + size
    return data[:position]


def log_lines(broker: Broker, epochs: Epochs) -> list[str]:
    return batch_lines(log_data(broker), epochs)


def batch_lines(data: bytes, epochs: Epochs) -> list[str]:
    lines = []
    for header in iterate_headers(data):
        if not header.record_count:
            offsets = range(header.base_offset, header.end_offset)
            lines += [f"{offset}: nothing {epochs.name(header.leader_epoch)}" for offset in offsets]
            continue
        records = decode_records(data[header.position : header.end_position], include_control=True)
        for offset, each in enumerate(records, header.base_offset):
            lines.append(f"{offset}: {what(header.is_control, each.key, each.value)} {epochs.name(header.leader_epoch)}")
    return lines


def log_end(broker: Broker) -> int:
    ends = [header.end_offset for header in iterate_headers(log_data(broker))]
    return ends[-1] if ends else -1


def segment_starts(broker: Broker) -> list[int]:
    return sorted(int(path.stem) for path in broker.partition.glob("0*.log"))


def log_epochs(broker: Broker, epochs: Epochs) -> str:
    """The leader-epoch-checkpoint. Of a log that begins above 0 its first entry is the epoch of the record before."""
    version, count, *rows = (broker.partition / FILE_NAME).read_text().splitlines()
    assert (int(version), int(count)) == (0, len(rows))
    return epochs.sequence([(int(epoch), int(offset)) for epoch, offset in map(str.split, rows)])


def producers(broker: Broker) -> list[tuple[int, int]]:
    """Sequence and offset of each batch of the producer that a stopped broker knows at the end of its log."""
    newest = max(broker.partition.glob("0*.snapshot"))
    assert int(newest.stem) == log_end(broker), "saved as the broker stopped"
    return sequences(producer_snapshot.decode(newest.read_bytes()))


# --- the table


def table_of(tables: Path) -> Path:
    (found,) = tables.glob(f"{TOPIC}-*")
    return found


def table_lines(tables: Path, epochs: Epochs) -> list[str]:
    """Every row, by offset: one that stands there twice is two lines. The incarnation of the row stands last."""
    query = f'select {COLUMNS} from t where "partition" = 0 order by "offset"'
    rows = pa.table(QueryBuilder().register("t", DeltaTable(table_of(tables))).execute(query).read_all())
    return row_lines(rows, epochs)


def superseded_lines(tables: Path, incarnation: int, epochs: Epochs) -> list[str]:
    """Of the plain files that left the table."""
    place = table_of(tables) / "_raftlake" / "superseded" / str(incarnation) / "partition=0"
    lines = []
    for path in sorted(place.glob("*.parquet")):
        # Without the partition in the path, which would be a column more.
        with path.open("rb") as file:
            lines += row_lines(pq.read_table(file), epochs)
    return lines


def row_lines(rows: Any, epochs: Epochs) -> list[str]:
    return [
        f"{row['offset']}: {what(row['kind'] == 1, row['key'], row['value'])} {epochs.name(row['leader_epoch'])} "
        f"incarnation {row['incarnation']}"
        for row in rows.to_pylist()
    ]


# --- the quorum's keys


def key_lines(client: Client, tables: Path, epochs: Epochs) -> list[str]:
    """RL metadata: how far the partition is copied, and each copy, with their leader epochs."""
    topic_id = table_of(tables).name.removeprefix(f"{TOPIC}-")
    key = tier_key(topic_id, 0)
    entry = client.kv.get(key)
    if entry is None:
        return []
    tiered = decode_tiered(entry.value)
    assert isinstance(tiered, Tiered), tiered
    lines = [f"{tiered.start_offset}..{tiered.end_offset - 1}: {epochs.sequence(tiered.epochs)}"]
    for each in client.kv.list(f"{key}/", values=True).entries:
        assert each.value is not None
        segment = decode_segment(each.value)
        assert isinstance(segment, RemoteSegment), segment
        lines.append(f"seg-{segment.base_offset}-{segment.end_offset - 1}: {epochs.sequence(segment.epochs)}")
    return lines


def wait_copied(leader: Broker, end: int) -> None:
    """Until the table shows the log up to there, was read back, and no copy more is under way."""

    def copied() -> bool:
        answer = leader.get("/v1/tier")
        rows = [] if answer is None else json.loads(answer)["partitions"]
        return [(row["copiedEndOffset"], row["checkedEndOffset"]) for row in rows] == [(end, end)]

    wait_until(copied, f"copies up to {end}, read back")


def require_clean(tables: Path, *brokers: Broker) -> None:
    """`raftlake tier verify` finds nothing, in the table and in the keys."""
    servers = ",".join(broker.address for broker in brokers)
    done = raftlake("tier", "verify", "--tier-uri", str(tables), "-b", servers)
    assert (done.returncode, done.stdout.count("all is well")) == (0, 1), done.stdout + done.stderr


# --- consumers


def served_lines(broker: Broker, end: int, epochs: Epochs) -> list[str]:
    """What a node gives a consumer of it from the first offset to `end`, from table and log: as `to_consumers` says it."""
    lines: list[str] = []

    def records_at(offset: int) -> bytes:
        """Nothing where the wait of a fetch ends before the node has read its table."""
        found = broker.fetch(offset)
        assert found.error is ErrorCode.NONE, found.error
        return bytes(found.records or b"")

    while (offset := len(lines)) < end:
        records = wait_until(partial(records_at, offset), f"what a consumer gets at {offset}")
        lines += [line for line in batch_lines(records, epochs) if int(line.split(":")[0]) >= offset]
    return lines


def to_consumers(lines: Sequence[str]) -> list[str]:
    """The lines of a log as consumers see it: control records are nothing, at offsets of their own."""
    told = "|".join(("LeaderChange", "KRaftVersion", "KRaftVoters"))
    return [re.sub(rf"^([0-9]+): ({told}) ", r"\1: nothing ", line) for line in lines]


def epoch_ends(broker: Broker, offset: int, epochs: Epochs, names: Sequence[str]) -> list[int | None]:
    """Where leader epochs end, as a node tells consumers at an offset whose last record was of these epochs. None where that
    may be the record before the offset."""
    found = [broker.fetch(offset, last_fetched_epoch=epochs.number(name)) for name in names]
    assert {each.error for each in found} == {ErrorCode.NONE}
    return [None if each.diverging_epoch is None else each.diverging_epoch.end_offset for each in found]


def consumed(leader: Broker, end: int, epochs: Epochs) -> list[str]:
    """The messages that a Kafka client reads from the beginning on. The last one is at `end` - 1."""
    seen: list[str] = []

    def read_on() -> bool:
        found = consumer.poll(0.1)
        if found is not None:
            assert found.error() is None, found.error()
            seen.append(f"{found.offset()}: {(found.value() or b'').decode()} {epochs.name(found.leader_epoch() or -1)}")
        return found is not None and found.offset() == end - 1

    with closing(consumer_of(leader)) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        wait_until(read_on, f"the message at {end - 1}")
    return seen


def refusal(leader: Broker, offset: int, leader_epoch: int) -> str:
    """What a Kafka client is told that goes on at an offset, and has read the record before in another epoch: its error."""

    def told() -> str | None:
        found = consumer.poll(0.1)
        return None if found is None else str(found.error())

    with closing(consumer_of(leader)) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, offset, leader_epoch=leader_epoch)])
        return str(wait_until(told, "an answer for the consumer"))


def consumer_of(leader: Broker) -> Consumer:
    settings = {"bootstrap.servers": leader.address, "group.id": "g", "enable.auto.commit": False}
    return Consumer({**settings, "auto.offset.reset": "error"})
