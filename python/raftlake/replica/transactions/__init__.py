"""Transactions of producers over several partitions (KIP-98, KIP-360, KIP-890 part 1), from their coordinator's side.

- `entry`: what the key of a transactional id holds (`Transaction`), and how that is read.

All state is keys of the quorum, so every node knows it, and snapshots and later leaders have it.
"""
