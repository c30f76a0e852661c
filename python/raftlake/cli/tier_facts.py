"""What `raftlake tier` gathers: the quorum's keys of the tier, what each node says of its partitions, and both put together.

The keys count for what is copied, since a leader proves them. A node counts for the high watermark and for what stands in the
way, which no key tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raftlake.kv.keys import CLUSTER_KEY, NODES_PREFIX, TIER_PREFIX, TOPICS_PREFIX
from raftlake.kv.strict_json import Refused
from raftlake.tier.entries import PartitionKeys, Tiered, decode_segment, decode_tiered

if TYPE_CHECKING:
    from raftlake.client import Client
    from raftlake.tier.verify import PartitionReport, TableReport

THREADS = 16
_PAGE_KEYS = 1000
_REBUILD = "`raftlake tier rebuild-metadata` makes the keys anew from the table"


@dataclass(frozen=True, slots=True)
class QuorumTier:
    """What the quorum's keys say of topics, of their copies, and of the nodes."""

    cluster_id: str | None
    #: Name and number of partitions by topic id.
    topics: Mapping[str, tuple[str, int]]
    #: By topic id and partition.
    keys: Mapping[str, Mapping[int, PartitionKeys]]
    #: HTTP addresses by node; None for a node that has none.
    nodes: Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node says of the partitions that it leads, or why it says nothing."""

    node_id: int
    place: str
    partitions: Sequence[Mapping[str, Any]] = ()
    #: Why tables of deleted topics are not emptied.
    deleted_topics: Sequence[str] = ()
    #: What it cannot read for consumers.
    unreadable: Sequence[Mapping[str, Any]] = ()
    error: str | None = None

    def facts(self) -> dict[str, Any]:
        return {
            "nodeId": self.node_id,
            "http": self.place,
            "partitions": len(self.partitions),
            "deletedTopics": list(self.deleted_topics),
            "unreadable": list(self.unreadable),
            "error": self.error,
        }


def read_quorum(client: Client) -> QuorumTier:
    """The keys as a leader proves them."""
    from raftlake.replica.reserved import decode_cluster, decode_node
    from raftlake.replica.reserved_rules import topic_under
    from raftlake.wire.ids import id_to_text

    nodes: dict[int, str | None] = {}
    for key, value in _entries(client, NODES_PREFIX):
        if not isinstance(node := decode_node(key, value), Refused):
            nodes[node.node_id] = None if node.http is None else str(node.http)
    topics: dict[str, tuple[str, int]] = {}
    for key, value in _entries(client, TOPICS_PREFIX):
        name = key.removeprefix(TOPICS_PREFIX)
        if (topic := topic_under(name, value)) is not None:
            topics[id_to_text(topic.topic_id)] = (name, topic.partitions)
    cluster = client.kv.get(CLUSTER_KEY)
    cluster_id = Refused("") if cluster is None or cluster.value is None else decode_cluster(cluster.value)
    return QuorumTier(
        cluster_id=None if isinstance(cluster_id, Refused) else cluster_id,
        topics=topics,
        keys=tier_keys(_entries(client, TIER_PREFIX)),
        nodes=nodes,
    )


def _entries(client: Client, prefix: str) -> Iterator[tuple[str, bytes]]:
    after: str | None = None
    while True:
        page = client.kv.list(prefix, after=after, limit=_PAGE_KEYS, values=True)
        for entry in page.entries:
            yield entry.key, entry.value or b""
        if not page.more or not page.entries:
            return
        after = page.entries[-1].key


def tier_keys(entries: Iterator[tuple[str, bytes]]) -> dict[str, dict[int, PartitionKeys]]:
    """The keys of the tier, by topic id and partition."""
    tiered: dict[tuple[str, int], Tiered | Refused] = {}
    segments: dict[tuple[str, int], dict[int, Any]] = {}
    for key, value in entries:
        topic_id, _, rest = key.removeprefix(TIER_PREFIX).partition("/")
        index, _, base = rest.partition("/")
        if not index.isdecimal() or not (base.isdecimal() or not base):
            continue
        place = (topic_id, int(index))
        if base:
            segments.setdefault(place, {})[int(base)] = decode_segment(value)
        else:
            tiered[place] = decode_tiered(value)
    found: dict[str, dict[int, PartitionKeys]] = {}
    for topic_id, partition in {**tiered, **segments}:
        place = (topic_id, partition)
        found.setdefault(topic_id, {})[partition] = PartitionKeys(tiered.get(place), segments.get(place, {}))
    return found


def ask_nodes(nodes: Mapping[int, str | None], timeout_seconds: float) -> list[NodeAnswer]:
    """`/v1/tier` of each node. A node that does not answer is no error of the command."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(THREADS) as threads:
        asked = [threads.submit(ask_node, node_id, place, timeout_seconds) for node_id, place in sorted(nodes.items())]
        return [answer.result() for answer in asked]


def ask_node(node_id: int, place: str | None, timeout_seconds: float) -> NodeAnswer:
    """`/v1/tier` of one node."""
    import httpx

    if place is None:
        return NodeAnswer(node_id, "no http.listener", error="the partitions that it leads are not known here")
    try:
        answer = httpx.get(f"http://{place}/v1/tier", timeout=timeout_seconds, trust_env=False)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return NodeAnswer(node_id, place, error="it has no remote tier: set tier.uri on all nodes")
        answer.raise_for_status()
        told = answer.json()
        return NodeAnswer(
            node_id,
            place,
            partitions=[each for each in told["partitions"] if {"topic", "partition"} <= set(each)],
            deleted_topics=[str(each) for each in told.get("deletedTopics", ())],
            unreadable=[each for each in told.get("unreadable", ()) if {"topic", "partition", "error"} <= set(each)],
        )
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return NodeAnswer(node_id, place, error=f"no answer: {_words(error)}")


def rebuild(place: str, topic: str, partition: int, timeout_seconds: float) -> tuple[dict[str, Any], bool]:
    """Have the leader at `place` make the keys of a partition anew. What they say then, where an error is part of the answer;
    and whether it is known what became of them."""
    import httpx

    row: dict[str, Any] = {"topic": topic, "partition": partition}
    row |= dict.fromkeys(("startOffset", "endOffset", "segments", "bytes", "error"))
    try:
        answer = httpx.post(
            f"http://{place}/v1/tier/rebuild-metadata",
            json={"topic": topic, "partition": partition},
            timeout=timeout_seconds,
            trust_env=False,
        )
        told = answer.json()
        if answer.status_code == httpx.codes.OK:
            return row | {name: told[name] for name in ("startOffset", "endOffset", "segments", "bytes")}, True
        row["error"] = str(told.get("error", f"the node answers {answer.status_code}"))
        return row, answer.status_code != httpx.codes.GATEWAY_TIMEOUT
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        row["error"] = f"no answer from {place}: {_words(error)}"
        return row, True
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        row["error"] = f"not known: no answer from {place}: {_words(error)}; the keys may be made anew still"
        return row, False


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def partition_facts(quorum: QuorumTier, answers: Sequence[NodeAnswer]) -> list[dict[str, Any]]:
    """A row for each partition of each topic, and for each one with keys whose topic is gone."""
    told: dict[tuple[str, int], Mapping[str, Any]] = {}
    for answer in answers:
        for each in answer.partitions:
            place = (str(each["topic"]), int(each["partition"]))
            # A leader that was replaced may not know it yet.
            if place not in told or each.get("highWatermark", -1) > told[place].get("highWatermark", -1):
                told[place] = each
    rows: list[dict[str, Any]] = []
    for topic_id in {**quorum.topics, **quorum.keys}:
        name, count = quorum.topics.get(topic_id, (None, 0))
        keys = quorum.keys.get(topic_id, {})
        for partition in sorted({*range(count), *keys}):
            said = told.get((name, partition), {}) if name is not None else {}
            unread = [] if name is None else _unreadable(answers, name, partition)
            rows.append(_row(name or topic_id, partition, keys.get(partition, PartitionKeys()), said, unread))
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def _unreadable(answers: Sequence[NodeAnswer], topic: str, partition: int) -> list[str]:
    """What nodes cannot read of a partition for consumers, one sentence for each reason."""
    found: dict[str, str] = {}
    for answer in answers:
        for each in answer.unreadable:
            if (each["topic"], each["partition"]) == (topic, partition):
                first, last = each.get("firstOffset"), each.get("lastOffset")
                what = "a time" if first is None else f"offset {first}" if first == last else f"offsets {first} to {last}"
                reason = str(each["error"].get("reason"))
                found.setdefault(reason, f"node {answer.node_id} cannot read {what} for consumers: {reason}")
    return list(found.values())


def _row(topic: str, partition: int, keys: PartitionKeys, said: Mapping[str, Any], unreadable: Sequence[str]) -> dict[str, Any]:
    tiered = keys.tiered if isinstance(keys.tiered, Tiered) else None
    copied = said.get("copiedEndOffset") if tiered is None else tiered.end_offset
    high_watermark = said.get("highWatermark")
    # The key may be newer than what the leader said.
    lag = None if copied is None or high_watermark is None else max(0, high_watermark - copied)
    error = (said.get("error") or {}).get("reason")
    if isinstance(keys.tiered, Refused):
        error = f"its key cannot be read: {keys.tiered.reason}; {_REBUILD}"
    return {
        "topic": topic,
        "partition": partition,
        "copiedEndOffset": copied,
        "highWatermark": high_watermark,
        "lag": lag,
        "lagMs": 0 if lag == 0 else said.get("lagMs"),
        "segments": 0 if tiered is None else tiered.segments,
        "bytes": 0 if tiered is None else tiered.size,
        "error": "; ".join(each for each in (error, *unreadable) if each) or None,
    }


def part_facts(part: PartitionReport) -> dict[str, int | None]:
    """What was read of a partition."""
    return {
        "partition": part.partition,
        "startOffset": part.start,
        "endOffset": part.end,
        "rows": part.rows,
        "files": part.files,
        "segments": part.segments,
        "batches": part.batches,
        "checkedBatches": part.checked_batches,
        "abortedRows": part.aborted,
    }


def report_facts(report: TableReport) -> dict[str, Any]:
    """A verified table, for JSON."""
    return {
        "table": report.table,
        "topic": report.topic,
        "version": report.version,
        "isDropped": report.is_dropped,
        "partitions": [part_facts(part) for part in report.partitions],
        "findings": [
            {
                "kind": finding.kind.word,
                "partition": finding.partition,
                "offset": finding.offset,
                "file": finding.file,
                "what": finding.what,
                "advice": finding.advice,
            }
            for finding in report.findings
        ],
    }
