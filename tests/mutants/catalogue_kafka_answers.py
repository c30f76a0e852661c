"""Planted bugs: answers that Kafka's clients and tools act upon, and what the node's log says of them."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

REMOTE_LOG = "raftlake.replica.tiering.remote_log"

EPOCH_ENDS = ("unit/replica/test_replica_apis_unserved_epoch.py", "unit/replica/test_replica_tiering_remote_log.py")


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


KAFKA_ANSWERS = (
    mutant(
        "old-epoch-ends-with-the-name-of-the-first-one",
        "Kafka's LeaderEpochFileCache.endOffsetFor: the epoch that was asked for",
        REMOTE_LOG,
        "return OffsetAndEpoch(first[1], epoch)",
        "return OffsetAndEpoch(first[1], first[0])",
        EPOCH_ENDS,
    ),
    mutant(
        "first-epoch-taken-for-an-earlier-one",
        "off by one: the first known epoch has an end of its own",
        REMOTE_LOG,
        "if first is None or epoch >= first[0]:",
        "if first is None or epoch > first[0]:",
        EPOCH_ENDS,
    ),
    mutant(
        "old-epoch-ends-where-the-local-log-begins",
        "KIP-405: the leader epoch sequence goes on before the local start",
        REMOTE_LOG,
        "first = next(iter(self.epochs(partition)), None)",
        "first = next(iter(partition.log.epochs), None)",
        EPOCH_ENDS,
    ),
)
