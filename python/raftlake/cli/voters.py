"""`raftlake voters`: who votes, and changing it (KIP-853).

A change is made to the quorum's own log; the command then waits until the groups of all topics have followed, and tells how far
they are. A new voter has to run already: it fetches as an observer, and is known by the directory id that its log directory
was formatted with.
"""

from __future__ import annotations

import base64
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftlake.cli.output import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    BootstrapServer,
    TimeoutMs,
    connect,
    note,
    print_json,
    print_table,
)
from raftlake.errors import ConfigError, ErrorCode, RaftlakeError, RequestRejected, WrongState, one_line

if TYPE_CHECKING:
    from raftlake.client import Client, QuorumDescription, ReplicaDescription
    from raftlake.client.types import Address

app = typer.Typer(help="List, add and remove the voters of the quorum.", no_args_is_help=True)

#: A new voter may have much to fetch, and many partitions have to follow.
_TIMEOUT_MS_DEFAULT = 60_000
#: Without a leader there is nothing to wait for that takes longer than an election.
LEADER_PATIENCE_MS = 15_000
#: A partition that nobody leads is looked for anew after so long: its topic may be deleted.
PARTITION_PATIENCE_MS = 5_000
_POLL_S = 0.25
#: Between two words on why a change is not made yet.
NOTE_S = 3.0
#: So often a disk has to be seen to fetch before it is taken for the one that its node has.
FETCHES_SEEN = 3
#: By so much the time of a last fetch may change without a fetch: the leader makes it of two clocks, in whole ms.
CLOCK_MS = 5
CONNECT_SECONDS = 5.0
NODE_ID_MAX = 2**31 - 1
_NUMBER = re.compile(r"[0-9]{1,10}")

#: Numbers and disks.
Voters = frozenset[tuple[int, bytes]]
DirectoryId = Annotated[str | None, typer.Option("--directory-id", help="Which disk, where a node has been seen with two.")]


@app.command("list")
def list_(
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT, timeout_ms: TimeoutMs = 10_000, as_json: AsJson = False
) -> None:
    """Who votes, and who only fetches."""
    with connect(bootstrap_server, timeout_ms) as client:
        facts = facts_of(client.describe_quorum())
    if as_json:
        print_json(facts)
    else:
        print_table(["NodeId", "DirectoryId", "Status"], [[str(value) for value in row.values()] for row in facts["replicas"]])


@app.command("add")
def add(
    voter: Annotated[str, typer.Argument(metavar="NODE_ID@HOST:PORT", help="The node, and where its peers reach it.")],
    directory_id: DirectoryId = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = _TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Make a running node a voter. It is an observer until it has everything that the leader has."""
    node_id, host, port = parse_voter(voter)
    deadline = time.monotonic() + timeout_ms / 1000
    require_for_clients(bootstrap_server)
    with connect(bootstrap_server, timeout_ms) as client:
        describe_at_leader(client, deadline)
        directory = _fetching_directory(client, node_id, directory_id, deadline)
        if directory is None:
            raise WrongState(
                f"node {node_id} does not fetch from the leader: start it first, with quorum.bootstrap.servers set to nodes of "
                "this quorum"
            )
        require_reachable(node_id, host, port, client.describe_cluster().nodes)
        require_for_peers(node_id, host, port)
        note(f"node {node_id} fetches; asking the leader to make it a voter")
        client.add_voter(node_id, directory, host, port, timeout_ms=_left_ms(deadline), not_yet=NotYet())
        _follow(client, deadline, as_json, lambda voters: (node_id, directory) in voters)


@app.command("remove")
def remove(
    node_id: Annotated[int, typer.Argument(metavar="NODE_ID", min=0, help="The node that shall vote no longer.")],
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = _TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Let a node vote no longer. It goes on fetching as an observer; stop it afterwards where it is not wanted."""
    deadline = time.monotonic() + timeout_ms / 1000
    require_for_clients(bootstrap_server)
    with connect(bootstrap_server, timeout_ms) as client:
        described = describe_at_leader(client, deadline)
        found = next((replica for replica in described.voters if replica.replica_id == node_id), None)
        if found is None:
            voters = ", ".join(str(replica.replica_id) for replica in described.voters)
            raise WrongState(f"node {node_id} is no voter; the voters are {voters}")
        removed = (node_id, found.directory_id)
        client.remove_voter(*removed, timeout_ms=_left_ms(deadline), not_yet=NotYet())
        _follow(client, deadline, as_json, lambda voters: removed not in voters)


def require_for_clients(bootstrap_server: str) -> None:
    """ConfigError for a listener for peers. It takes a change of voters, and does not tell the topics whose groups the command
    waits for: the change would be made, and the command would fail."""
    from raftlake.runtime.recovery.probe import served_apis
    from raftlake.runtime.settings.parsing import parse_servers
    from raftlake.wire.api import ApiKey

    for place in parse_servers("--bootstrap-server", bootstrap_server):
        served = served_apis(place, CONNECT_SECONDS)
        if served is not None and ApiKey.METADATA not in served:
            raise ConfigError(f"{place} is a listener for peers: clients connect to the address that `listeners` names")


def describe_at_leader(client: Client, deadline: float) -> QuorumDescription:
    """The quorum before a change; WrongState when no node leads it for as long as an election may take."""
    patience_ms = min(LEADER_PATIENCE_MS, _left_ms(deadline))
    try:
        return client.describe_quorum(timeout_ms=patience_ms)
    except RequestRejected as refused:
        if refused.code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE):
            raise
        raise WrongState(
            f"nothing was changed: a leader changes the voters, and no node led the quorum for {patience_ms / 1000:.0f} s; "
            "a majority of the voters has to run"
        ) from refused


def parse_voter(text: str) -> tuple[int, str, int]:
    """`4@host:9092` in its parts; ConfigError when it is not that."""
    id_text, at, address = text.partition("@")
    host, colon, port_text = address.rpartition(":")
    from raftlake.client.types import SHOWN_MAX, is_host

    host = host.removeprefix("[").removesuffix("]")
    is_id = _NUMBER.fullmatch(id_text) is not None and int(id_text) <= NODE_ID_MAX
    if not (at and colon and host and is_id and _NUMBER.fullmatch(port_text) and is_host(host)):
        raise ConfigError(f"{text[:SHOWN_MAX]!r} is no voter; accepted is NODE_ID@HOST:PORT, like 4@host:9092")
    if not 0 < int(port_text) < 65536:
        raise ConfigError(f"{text[:SHOWN_MAX]!r}: a port is a number from 1 to 65535")
    return int(id_text), host, int(port_text)


def require_reachable(
    node_id: int, host: str, port: int, nodes: Mapping[int, Address], patience_seconds: float = CONNECT_SECONDS
) -> None:
    """ConfigError when no node answers at the address that is about to go into the log, or another node lives there. A voter
    that its peers cannot ask for votes counts for the majority and helps no candidate to one. A node that is just starting
    fetches before it listens, so it is given some time."""
    for other_id, other in nodes.items():
        if other_id != node_id and (other.host, other.port) == (host, port):
            raise ConfigError(f"{host}:{port} is the address of node {other_id}, not of node {node_id}")
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise ConfigError(
                    f"no node answers at {host}:{port} ({error.strerror or error}): give the address at which the other nodes "
                    f"reach node {node_id}"
                ) from error
        time.sleep(_POLL_S)


def require_for_peers(node_id: int, host: str, port: int, patience_seconds: float = CONNECT_SECONDS) -> None:
    """ConfigError for an address at which no node gives votes: a listener for clients, an HTTP listener, another program. The
    leader would refuse it, and not say why. A node that is just starting is given some time to answer."""
    from raftlake.replica.config import Endpoint
    from raftlake.runtime.recovery.probe import served_apis
    from raftlake.wire.api import ApiKey

    deadline = time.monotonic() + patience_seconds
    while (served := served_apis(Endpoint(host, port), CONNECT_SECONDS)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if served is not None and ApiKey.VOTE in served:
        return
    what = "does not speak the Kafka protocol" if served is None else "is a listener for clients, at which no votes are given"
    raise ConfigError(
        f"{host}:{port} {what}: give the address of the controller.listener of node {node_id}, or of its listener where it has "
        "no controller.listener"
    )


def observer_directory(
    described: QuorumDescription, node_id: int, wanted: str | None, before: QuorumDescription
) -> bytes | None:
    """The disk under which a node has fetched since `before`; None when it has not. WrongState when it votes already.

    A leader remembers an observer for minutes after its last fetch, so that a disk that is gone may stand beside the new one.
    """
    if any(replica.replica_id == node_id and _text(replica) == (wanted or _text(replica)) for replica in described.voters):
        if not any(replica.replica_id == node_id for replica in described.observers):
            raise WrongState(f"node {node_id} is a voter already")
        raise WrongState(
            f"node {node_id} is a voter with another disk: remove it first (raftlake voters remove {node_id}), then add it"
        )
    fetched_before = {
        replica.directory_id: replica.last_fetch_timestamp_ms for replica in before.observers if replica.replica_id == node_id
    }
    for replica in described.observers:
        if replica.replica_id == node_id and wanted in (None, _text(replica)):
            then = fetched_before.get(replica.directory_id)
            if then is None or replica.last_fetch_timestamp_ms > then + CLOCK_MS:
                return replica.directory_id
    return None


def facts_of(described: QuorumDescription) -> dict[str, Any]:
    """What `voters list --json` prints."""
    rows = [
        {
            "nodeId": replica.replica_id,
            "directoryId": _text(replica),
            "status": "Observer" if is_observer else "Leader" if replica.replica_id == described.leader_id else "Voter",
        }
        for is_observer, replicas in ((False, described.voters), (True, described.observers))
        for replica in replicas
    ]
    return {"leaderId": described.leader_id, "leaderEpoch": described.leader_epoch, "replicas": rows}


def _text(replica: ReplicaDescription) -> str:
    return base64.urlsafe_b64encode(replica.directory_id).decode().rstrip("=")


def _follow(client: Client, deadline: float, as_json: bool, is_made: Callable[[Voters], bool]) -> None:
    """Wait until each partition has the quorum's voters, whatever other change comes meanwhile; say how many have. A leader
    that was removed may be asked once more before it knows: `is_made` tells whether the change is in."""
    told = -1
    while True:
        try:
            wanted, count, behind = _look(client, deadline)
        except RaftlakeError as error:
            raise WrongState(
                f"the change was made, but it could not be asked which partitions have followed ({one_line(error)}); they go "
                "on by themselves"
            ) from error
        done = count - len(behind)
        if done != told:
            told = done
            note(f"{done} of {count} partitions have followed")
        if not behind and is_made(wanted):
            break
        if time.monotonic() > deadline:
            if not behind:
                raise WrongState("the change was made, but by now the quorum has other voters: see raftlake voters list")
            raise WrongState(
                f"the quorum has its new voters, but {len(behind)} partitions have not followed yet, {behind[0]} among them; "
                "they go on by themselves"
            )
        time.sleep(_POLL_S)
    ids = sorted(node_id for node_id, _ in wanted)
    if as_json:
        print_json({"voters": ids, "partitions": count})
    else:
        print(f"voters: {', '.join(map(str, ids))}")


def _look(client: Client, deadline: float) -> tuple[Voters, int, list[str]]:
    """The quorum's voters, how many partitions there are, and those that have others."""
    wanted = _voters(client.describe_quorum(timeout_ms=_left_ms(deadline)))
    topics = client.topics(timeout_ms=_left_ms(deadline))
    partitions = [(topic.name, part.partition) for topic in topics for part in topic.partitions]
    behind = [f"{name}-{index}" for name, index in partitions if _voters_of_partition(client, name, index, deadline) != wanted]
    return wanted, len(partitions), behind


def _voters_of_partition(client: Client, topic: str, partition: int, deadline: float) -> Voters | None:
    """None where nobody can say now."""
    from raftlake.client.routing import RETRIABLE

    try:
        timeout_ms = min(PARTITION_PATIENCE_MS, _left_ms(deadline))
        return _voters(client.describe_quorum(topic, partition, timeout_ms=timeout_ms))
    except RequestRejected as refused:
        if refused.code not in RETRIABLE:
            raise
        return None


def _voters(described: QuorumDescription) -> Voters:
    return frozenset((replica.replica_id, replica.directory_id) for replica in described.voters)


def _fetching_directory(client: Client, node_id: int, wanted: str | None, deadline: float) -> bytes | None:
    """Ask until the node is seen to fetch; None when it does not in time. What a node sent before it died may still count as
    its fetches after, one or two of them."""
    seen: Counter[bytes] = Counter()
    before = client.describe_quorum()
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        described = client.describe_quorum()
        found = observer_directory(described, node_id, wanted, before)
        before = described
        if found is not None:
            seen[found] += 1
            if seen[found] == FETCHES_SEEN:
                return found
    return None


class NotYet:
    """Tells the person at the terminal why a change is not made yet, and not each number of a replica that catches up."""

    def __init__(self) -> None:
        self._next = time.monotonic()

    def __call__(self, reason: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + NOTE_S
            note(f"not yet: {reason}")


def _left_ms(deadline: float) -> float:
    return max(1.0, (deadline - time.monotonic()) * 1000)
