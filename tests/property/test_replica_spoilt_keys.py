"""Topics under good and spoilt puts, deletions, restarts, snapshots and late joiners: a twin of a few lines knows which there
are, all nodes agree with it, and no node's data of a topic goes before the topic's key is deleted."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftlake.kv.commands import Delete, Put, Txn, encode
from raftlake.kv.keys import topic_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import Topic
from raftlake.sim.disk.disk import MemoryLog
from replica_cluster import Cluster
from reservedkit import commit, trim, view

NAMES = ("a", "b", "c")
VOTER_IDS = (1, 2, 3)
JOINER = NodeId(4)
names = st.sampled_from(NAMES)
voters = st.sampled_from(VOTER_IDS)
partitions = st.integers(1, 3)
garbage = st.one_of(st.sampled_from([b"", b"{}", b"null", b"\xff", b'{"id": 1}', b"[" * 5000]), st.binary(max_size=20))
#: What is done to one key of a transaction. A twin puts the id of another topic under this name.
changes = st.one_of(
    st.tuples(st.just("create"), partitions),
    st.tuples(st.just("same id"), partitions),
    st.tuples(st.just("twin"), names),
    st.tuples(st.just("spoil"), garbage),
    st.tuples(st.just("spoil"), garbage),
    st.tuples(st.just("delete"), st.none()),
)
txns = st.dictionaries(names, changes, min_size=1, max_size=3)
steps = st.one_of(
    st.tuples(st.just("commit"), txns),
    st.tuples(st.just("commit"), txns),
    st.tuples(st.just("restart"), voters),
    st.tuples(st.just("stop"), voters),
    st.tuples(st.just("join"), st.none()),
    st.tuples(st.just("trim"), st.none()),
)


@dataclass
class Story:
    """The cluster, the topics that there should be, and the logs that each node was seen to hold."""

    cluster: Cluster = field(
        default_factory=lambda: Cluster(snapshot_bytes_between=2_000, segment_bytes=4_096, is_watched=False)
    )
    topics: dict[str, Topic] = field(default_factory=dict)
    #: The names whose keys are there.
    keys: set[str] = field(default_factory=set)
    held: dict[NodeId, dict[GroupId, MemoryLog]] = field(default_factory=dict)
    stopped: NodeId | None = None
    next_id: int = 1

    def play(self, what: str, detail: object) -> None:
        match what, detail:
            case "commit", dict(txn):
                commit(self.cluster, [encode(Txn((), tuple(self.operation(name, *change) for name, change in txn.items())))])
            case "trim", _:
                trim(self.cluster)
            case "join", _:
                self.join()
            case _, int(number):
                self.come_back()
                self.stopped = NodeId(number)
                self.cluster.stop(self.stopped)
                if what == "restart":
                    self.come_back()
        self.judge()

    def come_back(self) -> None:
        if self.stopped is not None:
            self.cluster.run(20_000, until=self.cluster.start(self.stopped).is_ready)
            self.stopped = None

    def join(self) -> None:
        """A node begins that has seen none of it."""
        if JOINER in self.cluster.nodes:
            self.cluster.stop(JOINER)
        self.cluster.wipe(JOINER)
        self.held.pop(JOINER, None)
        self.cluster.run(20_000, until=self.cluster.start(JOINER).is_ready)

    def operation(self, name: str, kind: str, detail: object) -> Put | Delete:
        """One change, which the twin follows."""
        standing = self.topics.get(name)
        if kind == "delete":
            self.topics.pop(name, None)
            self.keys.discard(name)
            return Delete(topic_key(name))
        self.keys.add(name)
        if kind == "spoil":
            assert isinstance(detail, bytes)
            return Put(topic_key(name), detail)
        topic = Topic(name, self.next_id.to_bytes(1, "big") * 16, detail if isinstance(detail, int) else 1)
        self.next_id += 1
        if kind == "same id" and standing is not None:
            topic = Topic(name, standing.topic_id, topic.partitions)
        if kind == "twin" and str(detail) in self.topics:
            topic = Topic(name, self.topics[str(detail)].topic_id, 3)
        follows = standing is None or (topic.topic_id == standing.topic_id and topic.partitions >= standing.partitions)
        holder = next((known for known, each in self.topics.items() if each.topic_id == topic.topic_id), name)
        if follows and holder == name:
            self.topics[name] = topic
        return Put(topic_key(name), topic.encode())

    def groups(self) -> set[GroupId]:
        return {group for topic in self.topics.values() for group in topic.groups()}

    def judge(self) -> None:
        """All that runs comes to host what there should be; nothing that there should be has begun anew meanwhile."""
        self.cluster.run(20_000, until=lambda: all(self.agrees(node) for node in self.cluster.nodes.values()))
        views = [view(node) for node in self.cluster.nodes.values()]
        assert all(each[:2] == views[0][:2] for each in views)
        for node_id in self.cluster.nodes:
            logs = self.cluster.disks[node_id].logs
            for group, log in self.held.get(node_id, {}).items():
                assert group not in self.groups() or logs.get(group) is log, f"node {node_id} has lost {group}"
            self.held[node_id] = dict(logs)

    def agrees(self, node: ReplicaNode) -> bool:
        hosted = set(node.partitions) - {METADATA_GROUP}
        on_disk = set(self.cluster.disks[node.config.node_id].groups()) - {METADATA_GROUP}
        known = {topic.name: topic for topic in node.names.all()}
        # A node that has missed a deletion cannot tell it from what earlier releases did to a key that was spoilt.
        left = {group for group in on_disk - self.groups() if group.topic not in self.keys - set(self.topics)}
        return known == self.topics and hosted == self.groups() and hosted <= on_disk and not left


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=st.lists(steps, min_size=3, max_size=12))
def test_nodes_agree_on_topics_and_lose_none(story: list[tuple[str, object]]) -> None:
    told = Story()
    for what, detail in story:
        told.play(what, detail)
    told.come_back()
    told.join()
    told.judge()
