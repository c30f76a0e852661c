"""Transactions of producers over several partitions (KIP-98, KIP-360, KIP-890 part 1), from their coordinator's side."""
