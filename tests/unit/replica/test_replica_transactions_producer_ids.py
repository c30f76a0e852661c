"""Producer ids in blocks: each is given out once, and who finds a block taken asks for the next one."""

from __future__ import annotations

from enginekit import Ground
from keyskit import Keys
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import PRODUCERS_NEXT_KEY
from raftlake.replica.kv.outcomes import ProposeDone, ProposeStatus
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK
from raftlake.replica.transactions.producer_ids import ProducerIds


class Anywhere(Keys):
    """Every node proposes its blocks, here or at the leader."""

    def propose_anywhere(self, txn: Txn, done: ProposeDone) -> None:
        self.proposed.append((txn, done))


def test_ids_come_from_a_block_and_then_from_the_next() -> None:
    keys, given = Anywhere(Ground()), list[int | None]()
    ids = ProducerIds(keys)  # type: ignore[arg-type]
    for _ in range(3):
        ids.take(given.append)
    assert (given, len(keys.proposed)) == ([], 1)
    keys.commit()
    assert given == [0, 1, 2]
    for _ in range(PRODUCER_IDS_BLOCK):
        ids.take(given.append)
    keys.commit()
    assert (given, keys.proposed) == (list(range(PRODUCER_IDS_BLOCK + 3)), [])


def test_a_block_that_another_node_took_is_its() -> None:
    keys, given = Anywhere(Ground()), list[int | None]()
    ids = ProducerIds(keys)  # type: ignore[arg-type]
    ids.take(given.append)
    keys.apply(Put(PRODUCERS_NEXT_KEY, b"%d" % PRODUCER_IDS_BLOCK))
    keys.commit()
    keys.commit()
    assert given == [PRODUCER_IDS_BLOCK]


def test_without_a_block_all_who_wait_are_told_and_the_next_one_asks_again() -> None:
    keys, given = Anywhere(Ground()), list[int | None]()
    ids = ProducerIds(keys)  # type: ignore[arg-type]
    ids.take(given.append)
    ids.take(given.append)
    keys.fail(ProposeStatus.UNKNOWN)
    assert given == [None, None]
    ids.take(given.append)
    keys.commit()
    assert given == [None, None, 0]
