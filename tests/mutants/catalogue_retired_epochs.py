"""Planted bugs: epochs of producers whose transactions were ended by commands beside keys, and how such commands come in."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

COMMANDS = "raftlake.kv.commands"
ENTRY = "raftlake.replica.transaction_entry"
INDEX = "raftlake.replica.transaction_index"
REQUESTS = "raftlake.replica.transactions.requests"
VERIFICATION = "raftlake.replica.transactions.verification"
CONNECTION = "raftlake.runtime.http.connection"
BODY = "raftlake.runtime.http.txn_body"

SIMULATED = ("unit/sim/test_sim_clients_transactions.py",)
AT_CLUSTERS = ("unit/replica/test_replica_transactions_retired.py",)
WRITTEN = ("unit/kv/test_kv_end_txn.py",)
READ = ("unit/replica/test_replica_transaction_entry.py",)
RULED = ("unit/replica/test_replica_transaction_index.py",)
ASKED = ("unit/replica/test_replica_transactions_requests.py",)
VERIFIED = ("unit/replica/test_replica_transactions_verification.py",)
BODIES = ("unit/runtime/test_runtime_http_txn_body.py",)
EXCHANGES = ("unit/runtime/test_runtime_http_connection_exchange.py",)
CONFIGS = ("unit/replica/test_replica_configs_changes.py",)
CLIENT = ("unit/client/test_client_kv.py",)


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


RETIRED_EPOCHS = (
    mutant(
        "a-command-leaves-the-epoch-as-it-is",
        "the same command, once more, ends the producer's next transaction",
        INDEX,
        "encode(decided.retired() if ending.retires_epoch else decided)",
        "encode(decided)",
        SIMULATED,
    ),
    mutant(
        "a-command-over-what-is-decided-leaves-the-epoch-as-it-is",
        "EndTxn came first; the command, once more, ends the producer's next transaction",
        INDEX,
        "is_same = standing.is_retired or not ending.retires_epoch",
        "is_same = True",
        RULED,
    ),
    mutant(
        "kafkas-own-end-retires-the-epoch",
        "Kafka's producers are fenced after their first transaction (KIP-98: the epoch stays)",
        REQUESTS,
        "self.commit, retires_epoch=False), DONE)",
        "self.commit), DONE)",
        AT_CLUSTERS,
    ),
    mutant(
        "a-retired-epoch-takes-partitions",
        "the coordinator answers a refusal by its own keys, which Kafka's clients repeat for ever",
        REQUESTS,
        "if epoch != self.epoch or standing.is_retired:",
        "if epoch != self.epoch:",
        ASKED,
    ),
    mutant(
        "the-next-epoch-is-retired-with-the-last",
        "a producer that asks for its next epoch is fenced in it",
        REQUESTS,
        "            is_retired=False,\n",
        "",
        ASKED,
    ),
    mutant(
        "a-retired-epoch-is-given-out-again",
        "a late InitProducerId gets an epoch that begins nothing",
        ENTRY,
        "return replace(self, is_retired=True, last_producer_id=NO_PRODUCER, last_epoch=NO_EPOCH)",
        "return replace(self, is_retired=True)",
        ASKED,
    ),
    mutant(
        "a-retired-epoch-comes-back-by-a-put",
        "the markers are written, and what says that the transaction is complete forgets the command",
        INDEX,
        "    if before.is_retired and not steps and not found.is_retired:\n",
        "    if False:\n",
        RULED,
    ),
    mutant(
        "a-retired-epoch-is-not-in-the-key",
        "a snapshot forgets which epochs are used up",
        ENTRY,
        "    if transaction.is_retired:\n",
        "    if False:\n",
        RULED,
    ),
    mutant(
        "an-ongoing-transaction-reads-as-retired",
        "a spoilt key makes a transaction that nobody can go on with",
        ENTRY,
        "if type(found) is not bool or (found and state not in _PREPARED and state not in _COMPLETE):",
        "if type(found) is not bool:",
        READ,
    ),
    mutant(
        "a-batch-begins-in-a-retired-epoch",
        "a zombie is told to come again, and comes for ever",
        VERIFICATION,
        "if transaction.epoch != header.producer_epoch or transaction.is_retired:",
        "if transaction.epoch != header.producer_epoch:",
        VERIFIED,
    ),
    mutant(
        "ends-of-earlier-builds-retire-epochs",
        "a log that is read again fences producers which went on",
        COMMANDS,
        "retires_epoch=bool(flags & _RETIRES_EPOCH)",
        "retires_epoch=True",
        WRITTEN,
    ),
    mutant(
        "a-long-number-is-left-to-python",
        "clients are told of sys.set_int_max_str_digits",
        BODY,
        "    if digits > NUMBER_DIGITS_MAX:\n",
        "    if False:\n",
        BODIES,
    ),
    mutant(
        "the-body-of-a-request-that-asks-for-an-upgrade-is-lost",
        "Java's HttpClient puts a value, is told 200, and the key is empty",
        CONNECTION,
        "        if parser.should_upgrade():\n",
        "        if False:\n",
        EXCHANGES,
    ),
    mutant(
        "a-config-that-comes-twice-has-no-name",
        "of fifty configs the reader has to find the doubled one",
        "raftlake.replica.configs.changes",
        'f"Error due to duplicate config keys: {shown(name)}"',
        '"Error due to duplicate config keys"',
        CONFIGS,
    ),
    mutant(
        "the-name-of-a-config-breaks-a-line",
        "a text of a client forges a line of a log",
        "raftlake.replica.configs.definitions",
        "    return printable(text[:SHOWN_CHARACTERS_MAX])\n",
        "    return text[:SHOWN_CHARACTERS_MAX]\n",
        CONFIGS,
    ),
    mutant(
        "an-end-of-no-producer-is-sent",
        "the answer names the place in a body that the program has never seen",
        "raftlake.client.types",
        "            if type(number) is not int or not 0 <= number <= most:\n",
        "            if type(number) is not int:\n",
        CLIENT,
    ),
)
