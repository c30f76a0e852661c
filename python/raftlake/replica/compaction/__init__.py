"""Compaction of the logs on this node: of each key the newest record stays (KIP-58, KIP-534).

Every replica compacts its own logs. `cleanable` says what of a log may be compacted, and how much of that was not yet. `floor`
says below which offset tombstones may go. `compactor` picks one log after the other, and begins the passes.
"""
