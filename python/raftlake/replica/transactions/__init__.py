"""Transactions of producers over several partitions (KIP-98, KIP-360, KIP-890 part 1), from their coordinator's side, and what
the leader of a partition asks of the quorum's keys.

- `verification`: whether a transaction may begin in a partition, and whether a marker is due there.
- `markers`: the markers that end transactions, written at the leader of a partition.
"""
