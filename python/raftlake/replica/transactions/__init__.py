"""Transactions of producers over several partitions (KIP-98, KIP-360, KIP-890).

The leader of the metadata log coordinates all of them. The transactions are keys of the quorum (`transaction_entry`), so each
node knows them, and the next leader goes on with them.

- `producer_ids`: producer ids, in blocks that one key gives out.
- `requests`: what the requests of producers ask for, judged over one transaction; pure.
- `raising`: EndTxn that raises the epoch of its producer, judged in the same way; pure.
- `words`: why a producer is refused, for logs and answers.
- `coordinator`: the requests become changes of keys, or wait for the transaction before.
- `delivery`: the markers of decided transactions, on their way to the leaders of partitions; `desk`: those of another node.
- `deadlines`: transactions that take too long, and ids that nobody uses.
- `service`: who coordinates, and what changes; it ticks the others.
- `additions`: partitions that their leaders add to transactions.
- `verification`: whether a transaction may begin in a partition, and whether a marker is due there.
- `markers`: the markers that end transactions, written at the leader of a partition.

Callers: `node` wires the services, `apis` submits requests, `front` passes markers of other nodes on.

Invariants:

- A transaction changes by compare-and-set of its key alone, whoever takes himself for the coordinator.
- What is decided is delivered until each partition has its marker; only then the transaction is complete.
- No partition gets the marker of an older transaction of the same producer.
"""
