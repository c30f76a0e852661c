"""The clients of a run, as many of each kind as its settings say.

Each client has one request at a time and thinks in between. Everything that they write is unique, so that the oracle can tell
any two writes apart.

To add a kind of client (a consumer group): a subclass of `clients.base.Client` in a module of
its own, the number of them in `faults.Settings`, and one line at the end of `make_clients`, so that the others draw as before.
A client must come to rest: after the faults have ended each must complete something, or say that it wants nothing (`is_done`).
"""

from __future__ import annotations

from raftlake.sim.clients.base import Client, Shared
from raftlake.sim.clients.committed_readers import CommittedReader
from raftlake.sim.clients.configurer import Configurer
from raftlake.sim.clients.deleter import Deleter
from raftlake.sim.clients.historian import Historian
from raftlake.sim.clients.idempotent import IdempotentProducer
from raftlake.sim.clients.keyed import KeyedConfigurer, KeyedReader, KeyedTopic
from raftlake.sim.clients.kv import KvClient
from raftlake.sim.clients.kv_ranges import RangeKvClient
from raftlake.sim.clients.producers import Creator, Producer
from raftlake.sim.clients.readers import Reader
from raftlake.sim.clients.topics import TopicChurner
from raftlake.sim.clients.transactions import TransactionalProducer
from raftlake.sim.clients.voters import Operator
from raftlake.sim.faults.faults import stream


def make_clients(shared: Shared, keyed: KeyedTopic) -> list[Client]:
    """The clients that the settings ask for. Every third producer is a plain one. `keyed` is the topic that is compacted."""
    settings = shared.settings
    rng = stream(settings.seed, "clients")
    clients: list[Client] = [Creator(shared, "creator")]
    for index in range(settings.producers):
        partition = rng.randrange(settings.partitions)
        kind = Producer if index % 3 == 2 else IdempotentProducer
        clients.append(kind(shared, f"producer{index}", partition))
    clients.extend(Reader(shared, f"reader{index}") for index in range(settings.readers))
    clients.extend(TopicChurner(shared, f"churner{index}") for index in range(settings.churners))
    of_keys = RangeKvClient if settings.kv_range_percent else KvClient
    clients.extend(of_keys(shared, f"kv{index}") for index in range(settings.kv_clients))
    clients.extend(Operator(shared, f"operator{index}") for index in range(settings.operators))
    clients.extend(Historian(shared, f"historian{index}") for index in range(settings.historians))
    clients.extend(Deleter(shared, f"deleter{index}") for index in range(settings.deleters))
    clients.extend(Configurer(shared, f"configurer{index}") for index in range(settings.configurers))
    clients.extend(TransactionalProducer(shared, f"transactor{index}", index) for index in range(settings.transactors))
    if settings.transactors:
        clients.append(CommittedReader(shared, "committed"))
    if settings.keyed_producers:
        clients.extend(make_keyed_clients(shared, keyed))
    return clients


def make_keyed_clients(shared: Shared, target: KeyedTopic) -> list[Client]:
    """Those of a compacted topic. Its producers are of all kinds in turn."""
    settings = shared.settings
    clients: list[Client] = [Creator(shared, "keyed-creator", target, target.configs())]
    for index in range(settings.keyed_producers):
        name = f"keyed{index}"
        if index % 3 == 0:
            clients.append(IdempotentProducer(shared, name, 0, target))
        elif index % 3 == 1:
            clients.append(TransactionalProducer(shared, name, index // 3, target))
        else:
            clients.append(Producer(shared, name, 0, target))
    clients.extend(KeyedReader(shared, f"keyed-reader{index}", target) for index in range(settings.keyed_readers))
    clients.extend(KeyedConfigurer(shared, f"keyed-configurer{index}", target) for index in range(settings.keyed_configurers))
    clients.extend(Deleter(shared, f"keyed-deleter{index}", target) for index in range(settings.keyed_deleters))
    return clients
