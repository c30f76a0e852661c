"""Is the majority of a quorum really lost? What `raftlake recover` asks before it makes one directory a quorum by itself.

Owns the judgement. Who votes is what this directory's own log says last, committed or not; the settings count only where the
log says nothing (kraft.version 0), and otherwise give addresses. Every voter is asked at each place where it may be: at its
endpoints in the set, where it registered itself, at `quorum.voters`, and at every one of `quorum.bootstrap.servers`. Changes
nothing. Invariant: a node is refused that the log does not name as a voter, with this very directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from raftlake.errors import CorruptBatch, WireError, WrongState
from raftlake.kv.commands import Put, decode
from raftlake.kv.keys import NODES_PREFIX
from raftlake.kv.keyspace import unpack
from raftlake.kv.snapshot import decode_rows
from raftlake.ports.driver import LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_DIRECTORY, NO_VOTERS, NodeId, Offset, ReplicaKey, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.partition.intact import headers_from
from raftlake.replica.partition.snapshot_files import check, scan
from raftlake.replica.partition.start_points import READ_BYTES
from raftlake.replica.partition.voter_log import read_batch_voters
from raftlake.replica.reserved import NodeAddresses, decode_node
from raftlake.runtime.recovery.probe import Answer, ask
from raftlake.storage.directory import FileLogDirectory
from raftlake.wire.batches import BatchHeader, decode_records

PROBE_SECONDS = 2.0
PROBE_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """What the directory knows about its quorum."""

    replica: ReplicaKey
    cluster_id: str | None
    #: Of the quorum's log; None where neither it nor its snapshot says who votes.
    voters: VoterSet | None
    #: The voters of every group that says who they are, the quorum's own among them.
    groups: Mapping[GroupId, VoterSet]
    #: Where nodes registered themselves.
    addresses: Mapping[NodeId, Endpoint]


def survey(logs: FileLogDirectory, group: GroupId, replica: ReplicaKey, cluster_id: str | None) -> Survivor:
    """Read a directory whose quorum's log is `group`. Raises StorageError, DamagedData."""
    found = {each: voters for each in logs.groups() if (voters := latest_voters(logs, each)) is not None}
    addresses = registered(logs) if group == METADATA_GROUP else {}
    return Survivor(replica=replica, cluster_id=cluster_id, voters=found.get(group), groups=found, addresses=addresses)


def latest_voters(logs: FileLogDirectory, group: GroupId) -> VoterSet | None:
    """By the newest snapshot that can be read and the whole log. Raises StorageError, DamagedData."""
    log = logs.open(group)
    voters = VoterHistory(NO_VOTERS)
    start = log.start_offset
    for snapshot_id in reversed(logs.snapshots.ids(group)):
        try:
            snapshot = check(logs.snapshots, group, snapshot_id)
        except CorruptBatch:
            # Its log, or an older one, says the same; `examine` tells of damage.
            continue
        voters.reset(snapshot_id.offset, snapshot.voters)
        start = max(start, snapshot_id.offset)
        break
    for chunk, header in headers_in(group, log, start):
        if header.is_control:
            found = read_batch_voters(memoryview(chunk)[header.position : header.end_position])
            if found is not None:
                voters.record(Offset(header.base_offset), found)
    return voters.latest if voters.kraft_version else None


def registered(logs: FileLogDirectory) -> dict[NodeId, Endpoint]:
    """The addresses under NODES_PREFIX: from the snapshots, and over them from the log."""
    found: dict[NodeId, Endpoint] = {}
    for key, value in _values(logs):
        known = decode_node(key, value) if key.startswith(NODES_PREFIX) else None
        # What no node writes gives no address to ask.
        if isinstance(known, NodeAddresses):
            found[known.node_id] = known.listener
    return found


def _values(logs: FileLogDirectory) -> Iterable[tuple[str, bytes]]:
    for snapshot_id in logs.snapshots.ids(METADATA_GROUP):
        try:
            for batch in scan(logs.snapshots, METADATA_GROUP, snapshot_id):
                # The first and the last value are the key space's header and footer, which hold no rows.
                for record in decode_records(batch.data):
                    yield from _rows_of(record.value or b"")
        except CorruptBatch:
            continue
    yield from _values_in_log(logs.open(METADATA_GROUP))


def _rows_of(chunk: bytes) -> list[tuple[str, bytes]]:
    try:
        return [(key, unpack(row).value) for key, row in decode_rows(chunk)]
    except WireError:
        return []


def _values_in_log(log: LogStore) -> Iterable[tuple[str, bytes]]:
    for chunk, header in headers_in(METADATA_GROUP, log, log.start_offset):
        if header.is_control:
            continue
        for record in decode_records(memoryview(chunk)[header.position : header.end_position]):
            try:
                operations = decode(record.value or b"").ops
            except WireError:
                operations = ()
            for operation in operations:
                if isinstance(operation, Put):
                    yield operation.key, operation.value


def headers_in(group: GroupId, log: LogStore, offset: Offset) -> Iterator[tuple[bytes, BatchHeader]]:
    """The headers from `offset` on, each with the bytes that it stands in. Raises DamagedData, StorageError."""
    while offset < log.end_offset:
        chunk = log.read(offset, log.end_offset, READ_BYTES)
        if not chunk:
            return
        for header in headers_from(group, chunk, offset):
            yield chunk, header
            offset = Offset(header.end_offset)


def require_lost_majority(
    survivor: Survivor,
    *,
    static: Mapping[NodeId, Endpoint],
    bootstrap_servers: Sequence[Endpoint],
    own: Sequence[Endpoint],
) -> None:
    """Raises WrongState when there is nothing to recover, or when it is not for this directory to do it."""
    me = survivor.replica
    voters = _require_voter(survivor, static)
    if survivor.voters is not None and all(each.ids == (me.id,) and each.has(me) for each in survivor.groups.values()):
        raise WrongState(
            f"node {me.id} with this directory is the only voter already: nothing is to be recovered. Start it with "
            "`raftlake serve`; quorum.voters has to name it alone"
        )
    places = _places(voters, survivor.addresses, static)
    owner = {place: node_id for node_id, known in places.items() for place in known if node_id != me.id}
    wanted = list(dict.fromkeys([*owner, *bootstrap_servers]))
    asked = [place for place in wanted if place not in own]
    with ThreadPoolExecutor(PROBE_THREADS) as threads:
        replies = list(threads.map(lambda place: ask(place, PROBE_SECONDS), asked))
    heard = {place: reply for place, reply in zip(asked, replies, strict=True) if _is_ours(reply, survivor.cluster_id)}
    _refuse_leader(heard, me.id)
    alive = {owner[place]: place for place in heard if owner.get(place) in voters}
    # An unknown node that answers at a bootstrap server may be any of the voters that were not found.
    strangers = [place for place in heard if place not in owner][: len(voters) - 1 - len(alive)]
    if len(voters) > 1 and len(alive) + len(strangers) + 1 >= voters.majority:
        told = [f"node {node_id} answers at {alive[node_id]}" for node_id in sorted(alive)]
        told += [f"a node answers at {place}" for place in strangers]
        raise WrongState(
            f"the voters are {_ids(voters)}: {', '.join(told) or 'no other is needed'}; with this node that is a majority, so "
            "nothing is lost: start this node with `raftlake serve`"
        )


def _require_voter(survivor: Survivor, static: Mapping[NodeId, Endpoint]) -> VoterSet:
    me, voters = survivor.replica, survivor.voters
    if voters is None:
        if me.id not in static:
            raise WrongState(
                f"node {me.id} is no voter: its log does not say who votes, and quorum.voters does not name it. Recover from "
                "the directory of a voter"
            )
        return VoterSet({node_id: ReplicaKey(node_id, NO_DIRECTORY) for node_id in sorted(static)})
    if me.id not in voters:
        raise WrongState(
            f"node {me.id} is no voter: by the log in this directory the voters are {_ids(voters)}. It was removed, or only "
            "observed, and may lack what they had acknowledged. Recover from the directory of one of them"
        )
    if not voters.has(me):
        raise WrongState(
            f"this directory of node {me.id} is no voter: by its log node {me.id} votes with another directory id. Recover "
            "from the directory of a voter"
        )
    return voters


def _places(
    voters: VoterSet, addresses: Mapping[NodeId, Endpoint], static: Mapping[NodeId, Endpoint]
) -> dict[NodeId, list[Endpoint]]:
    """Everywhere that a node may be reached, voters first; observers are asked too, for they know who leads."""
    places: dict[NodeId, list[Endpoint]] = {}
    for node_id in [*voters.ids, *(other for other in sorted({*addresses, *static}) if other not in voters)]:
        found = [Endpoint(each.host, each.port) for each in voters.endpoints.get(node_id, ())]
        found += [known[node_id] for known in (addresses, static) if node_id in known]
        places[node_id] = list(dict.fromkeys(found))
    return places


def _is_ours(reply: Answer | None, cluster_id: str | None) -> bool:
    """Another cluster's node, which says so, took over the address."""
    return reply is not None and (reply.cluster_id is None or cluster_id is None or reply.cluster_id == cluster_id)


def _refuse_leader(heard: Mapping[Endpoint, Answer | None], me: NodeId) -> None:
    for place, reply in heard.items():
        if reply is not None and reply.leader_id >= 0 and reply.leader_id != me:
            raise WrongState(
                f"the node at {place} says that node {reply.leader_id} leads the quorum: with a live leader nothing is lost. "
                "Start this node with `raftlake serve`; if that leader has just died, try again in a few seconds"
            )


def _ids(voters: VoterSet) -> str:
    return ", ".join(str(node_id) for node_id in voters.ids)
