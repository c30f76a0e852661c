"""The services that host groups, over a data directory of real files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from enginekit import Ground, Noted
from raftlake.kv.commands import Delete, Txn, encode, put
from raftlake.kv.keys import topic_key
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.hosting.topics import TopicRegistry
from raftlake.replica.kv.state import KvState
from raftlake.replica.names import Names
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved import Topic
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore

FIRST, SECOND = b"1" * 16, b"2" * 16


class Hosted:
    """The keys are those of the test."""

    def __init__(self, place: Path) -> None:
        self.ground, self.place, self.state = Ground(), place, KvState()
        engine = self.ground.engine
        self.ground.lead()
        self.files = FileLogDirectory(place, post=None)
        engine.logs, engine.elections = self.files, FileElectionStore(place)
        self.disk = disk = Noted()
        self.names, quorum = Names(engine.config), Quorum(engine)
        self.kv: Any = SimpleNamespace(machine=self.state.machine, state=self.state, listeners=[])
        self.damage = DamageControl(engine, self.names, quorum)
        self.hosting = Hosting(
            engine,
            names=self.names,
            quorum=quorum,
            reports=Noted(),  # type: ignore[arg-type]
            producers=ProducerCare(engine),
            disk=disk,  # type: ignore[arg-type]
            damage=self.damage,
            kv=self.kv,
            snapshots=Noted(),  # type: ignore[arg-type]
        )
        self.names.found(self.files.groups())
        TopicRegistry(engine, names=self.names, quorum=quorum, disk=disk, kv=self.kv, hosting=self.hosting)  # type: ignore[arg-type]

    def commit(self, txn: Txn) -> None:
        machine, partition = self.state.machine, self.ground.engine.partitions[METADATA_GROUP]
        offset = partition.log.end_offset
        self.ground.append(partition, encode(txn))
        machine.apply(offset, encode(txn))
        machine.advance_to(partition.core.log_end)
        for listener in self.kv.listeners:
            listener(machine.applied_offset)

    def create(self, topic_id: bytes, partitions: int = 1, **configs: str) -> None:
        """Or change it."""
        self.commit(put(topic_key("orders"), Topic("orders", topic_id, partitions, configs).encode()))

    def delete(self) -> None:
        self.commit(Txn((), (Delete(topic_key("orders")),)))

    @property
    def hosts(self) -> dict[str, bytes]:
        """The groups of topics, and the ids of their topics."""
        return {str(group): group.topic_id for group in self.ground.engine.partitions if group != METADATA_GROUP}

    @property
    def directories(self) -> list[str]:
        return sorted(path.name for path in self.place.iterdir() if path.name.startswith("orders-"))
