"""Planted bugs: epochs that each end of a transaction raises, and batches that bring their partitions (KIP-890 part 2)."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

ENTRY = "raftlake.replica.transaction_entry"
INDEX = "raftlake.replica.transaction_index"
RAISING = "raftlake.replica.transactions.raising"
REQUESTS = "raftlake.replica.transactions.requests"
COORDINATOR = "raftlake.replica.transactions.coordinator"
ADDITIONS = "raftlake.replica.transactions.additions"
VERIFICATION = "raftlake.replica.transactions.verification"
PROPOSALS = "raftlake.replica.kv.proposals"
MEMBERSHIP = "raftlake.replica.voters.membership"
API_VERSIONS = "raftlake.runtime.listener.api_versions"

AT_CLUSTERS = ("unit/replica/test_replica_transactions_version_2.py",)
ASKED = ("unit/replica/test_replica_transactions_raising.py",)
GATED = ("unit/replica/test_replica_kv_proposals.py",)
TOLD = ("unit/runtime/test_runtime_log.py",)


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


TRANSACTION_VERSION = (
    mutant(
        "the-decision-leaves-the-epoch",
        "markers fence nobody, and a late batch gets into the next transaction (KIP-890 part 2)",
        ENTRY,
        "            epoch=self.epoch + 1,\n",
        "            epoch=self.epoch,\n",
        AT_CLUSTERS,
    ),
    mutant(
        "a-repeated-end-is-fenced",
        "a producer that lost the answer gives up, though its transaction is committed",
        RAISING,
        "return (standing.producer_id, standing.epoch - 1), (standing.last_producer_id, standing.last_epoch)",
        "return ()",
        AT_CLUSTERS,
    ),
    mutant(
        "a-repeated-end-is-known-by-its-epoch-alone",
        "as Kafka: the epoch of another producer is told to whoever had the one before",
        RAISING,
        "if standing.is_raised and self.epoch >= 0 and asked",
        "if standing.is_idle and self.epoch >= 0 and asked",
        ASKED,
    ),
    mutant(
        "a-repeated-end-says-what-is-asked",
        "an abort that comes after the commit is told to be done",
        RAISING,
        "return _told(standing) if self._is_as_decided(standing) else INVALID",
        "return _told(standing)",
        AT_CLUSTERS,
    ),
    mutant(
        "used-up-epochs-count-on",
        "an epoch that is for markers alone is given to a producer, and nobody can fence it",
        RAISING,
        "if self.epoch == EPOCH_EXHAUSTED and self.new_id is None",
        "if self.epoch == EPOCH_EXHAUSTED + 1 and self.new_id is None",
        ASKED,
    ),
    mutant(
        "the-epoch-of-a-fence-is-given-away",
        "the last epoch of all fences, and is for no producer",
        RAISING,
        "        if standing.successor[1] > EPOCH_EXHAUSTED:\n            return FENCED\n",
        "",
        ASKED,
    ),
    mutant(
        "the-new-id-is-told-and-not-taken",
        "the markers are written, and the producer has its old id",
        ENTRY,
        "        producer_id, epoch = self.successor\n",
        "        producer_id, epoch = self.producer_id, self.epoch\n",
        AT_CLUSTERS,
    ),
    mutant(
        "the-new-id-does-not-wait",
        "the producer is told that its id is nobody's while the markers are under way",
        REQUESTS,
        "        producer_id, epoch = standing.successor\n        if producer_id",
        "        producer_id, epoch = standing.producer_id, standing.epoch\n        if producer_id",
        ASKED,
    ),
    mutant(
        "an-empty-abort-takes-the-place-of-complete",
        "Kafka's producer aborts before anything is sent: the change hides how the last transaction ended, and is ignored",
        COORDINATOR,
        "case Write() if lane.marked_version and isinstance(held.request, EndAndRaise):",
        "case Write() if lane.marked_version < 0:",
        AT_CLUSTERS,
    ),
    mutant(
        "a-retired-epoch-is-told-once-more",
        "the producer counts from 0 with it, and its batches pass for repeated ones: acknowledged and lost",
        RAISING,
        "        if standing.is_prepared:\n            return Wait()\n",
        "        if standing.is_prepared or standing.is_retired:\n            return _told(standing)\n",
        AT_CLUSTERS,
    ),
    mutant(
        "a-batch-brings-no-partition",
        "Kafka's producers of transaction.version 2 send no AddPartitionsToTxn",
        VERIFICATION,
        "ADDS_FROM_VERSION = 12",
        "ADDS_FROM_VERSION = 99",
        AT_CLUSTERS,
    ),
    mutant(
        "older-batches-bring-their-partitions",
        "a batch that comes late begins a transaction that nobody ends (KIP-890 part 1)",
        VERIFICATION,
        "ADDS_FROM_VERSION = 12",
        "ADDS_FROM_VERSION = 11",
        ("unit/replica/test_replica_transactions_verification.py",),
    ),
    mutant(
        "a-fenced-batch-is-told-producer-fenced",
        "producers know no such code beside their records",
        VERIFICATION,
        "_TOLD.get(answer.error, answer.error)",
        "answer.error",
        AT_CLUSTERS,
    ),
    mutant(
        "each-partition-is-a-command",
        "a transaction over a hundred partitions takes a hundred commits of the metadata log",
        ADDITIONS,
        "        asked, gathered.next = gathered.next, []\n",
        "        asked, gathered.next = gathered.next[:1], gathered.next[1:]\n",
        AT_CLUSTERS,
    ),
    mutant(
        "who-waits-elsewhere-is-forgotten",
        "the key changes, and the batch waits until its time is over",
        ADDITIONS,
        "if version != asked.waits_at:",
        "if version == asked.waits_at and version < 0:",
        AT_CLUSTERS,
    ),
    mutant(
        "who-waits-elsewhere-waits-for-ever",
        "the markers cannot be written, and nobody tells the producer",
        ADDITIONS,
        "at_ms = self._engine.now_ms + HOLD_MS",
        "at_ms = self._engine.now_ms + 100 * HOLD_MS",
        AT_CLUSTERS,
    ),
    mutant(
        "who-waited-elsewhere-is-answered-twice",
        "seed 70: the time of a wait that is over ends the request whose command is under way",
        ADDITIONS,
        "        asked.timer.cancel()\n",
        "        asked.timer = None\n",
        ("unit/replica/test_replica_transactions_additions.py",),
    ),
    mutant(
        "a-node-decides-transactions",
        "whoever gets onto the peers' listener commits the transactions of others",
        PROPOSALS,
        "if version == ABSENT or not found.is_ongoing:",
        "if version == ABSENT:",
        GATED,
    ),
    mutant(
        "a-node-changes-more-than-partitions",
        "a node that adds a partition gives the producer another epoch",
        PROPOSALS,
        "return None if told == standing else",
        "return None if told is not standing else",
        GATED,
    ),
    mutant(
        "epochs-are-raised-before-all-nodes-know-it",
        "a node of an older release ignores the decision, and its keys say something else",
        MEMBERSHIP,
        "return min([*told.values(), TRANSACTION_VERSION_MAX])",
        "return TRANSACTION_VERSION_MAX",
        AT_CLUSTERS,
    ),
    mutant(
        "transaction-version-told-at-level-0",
        "producers speak what no node takes",
        API_VERSIONS,
        '("transaction.version", transaction_version))',
        '("transaction.version", TRANSACTION_VERSION_MAX))',
        TOLD,
    ),
    mutant(
        "a-raised-epoch-has-a-transaction",
        "a command ends a transaction that has not begun, if the one before has ended so",
        INDEX,
        "        if standing.is_raised:\n            return",
        "        if standing.is_retired and standing.is_raised:\n            return",
        AT_CLUSTERS,
    ),
)
