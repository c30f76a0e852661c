"""When closed segments are copied to the remote tier (KIP-405), and by whom.

Reading order:

- `tiering`: the service. It closes open segments whose records wait too long, and keeps a copier for each partition that this
  node leads.
- `copier`: one led partition. It proposes COPY_STARTED, has the tier make the copy, and proposes COPY_FINISHED.

Callers: `node` wires the service, and housekeeping ticks it. The package calls the key-value service, the port `RemoteTier` and
the pure modules `tier.entries` and `tier.plan`.

Invariants:

- Only records below the high watermark are copied.
- A copier acts on the keys as this node has applied them. Each step is a compare-and-set on the partition's key.
- A copier has one call under way at a time. A copier that is closed has no effect any more.
- A node without a tier has no copiers, and closes no segments for them.
"""
