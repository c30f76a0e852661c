"""Which groups this node hosts: opened from disk, begun for new topics, and closed with deleted ones.

Reading order:

- `hosting`: `Hosting` opens a group from its files, closes it, and begins its log anew behind a snapshot.
- `topics`: `TopicRegistry` follows the keys of topics, and proposes their creation, changes and deletion.
- `auto_creation`: `AutoCreation` creates the topics that clients ask for, where the node's settings say so.
- `topic_news`: what is told of topics that were created or deleted.
- `queue`: `HostingQueue` opens and deletes some groups at a time.
- `closed`: `ClosedGroups` tries groups again that cannot be opened for want of room.
- `first_leaders`: `FirstLeaders` holds the answer to a creation until the topic's partitions have leaders.

What a topic's name or id stands for is known to `Names`, which this package fills.

Callers: `node` calls `Hosting.open_all` at start. `KvService` tells `TopicRegistry` of what was applied. `apis` creates and
deletes topics. `turn.restart` closes a damaged group and opens it again.

Invariants:

- One directory holds one incarnation of a topic. Another one is opened when the first is deleted.
- A group that waits for room is opened by its attempt alone, which knows what is still to be done for it.
- Groups that lie on disk are opened before their topics' keys are replayed, so that they can vote.
- All topics of a thousand partitions stop the node for no longer than a few groups do.
"""
