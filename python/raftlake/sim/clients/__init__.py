"""The simulated clients of a run: producers, transactional producers, readers, clients of the key-value space, operators,
clients that delete records, clients that change configs, and those of a compacted topic.

Reading order:

- `workload`: how many clients of each kind a run has, and how to add a kind.
- `base`: the pace of a client, and what all clients of a run share.
- `calls`: the network between clients and nodes; each call ends in exactly one outcome.
- `messages`: the Kafka messages that clients send, and what clients read in the answers.
- `producers`, `idempotent`: plain producers; idempotent producers with several batches under way.
- `readers`: linearizable reads, consumers and listed offsets.
- `historian`: consumers that read from the beginning, over the remote tier and the log.
- `kv`, `kv_ranges`, `history`: clients of the key-value space; those that deal with ranges of keys, too; their answers, judged
  as one history.
- `deleter`: a client that deletes old records, and looks for what must not be there any more.
- `transactions`, `transaction_messages`, `committed_readers`: transactional producers, and consumers that see committed
  transactions only.
- `configurer`: a client that changes the configs of topics, and looks whether they are obeyed.
- `keyed`: a compacted topic, its readers, and a client that changes its configs.
- `topics`: a client that creates and deletes a topic over and over.
- `voters`, `operations`: an operator that changes voters; the operator's view of machines, and the replacement of disks.

Callers: `sim/cluster.py` builds the clients and starts them. The clients call `ReplicaNode` through `calls`. The answers that
promise something go to `sim/oracle.py`.

Invariants:

- A client has one request at a time, but an idempotent producer may have several batches under way.
- Everything that clients write is unique, so the oracle can tell any two writes apart.
- Only a refused call says that nothing happened. A call that broke off or stayed silent has an unknown outcome.
- `operations` never lets more than one voter of three be lost at a time.
- After the faults have ended, each client completes a request or says that it wants nothing.
"""
