"""Producer ids and their sequences: what makes a retried batch harmless (Kafka's idempotent producer).

A *lane* is one producer id on one partition. A node remembers the last five batches of a producer id, so a batch without an
outcome may have at most four successors in its lane, whether those have theirs already or not; a client that wants more in
flight uses several lanes side by side. The invariant: within a lane, sequences are given out without a gap, and a lane
whose sequence may have a gap is retired for good.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from crc32c import crc32c
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse

from raftlake.client import protocol
from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.routing import RETRIABLE
from raftlake.client.shared_work import SharedWork
from raftlake.errors import ErrorCode, RequestRejected, code_of
from raftlake.wire.api import ApiKey

#: As many batches as a node remembers per producer id and partition.
BATCHES_PER_LANE = 5

_PRODUCER_POSITION = 43
_CRC_POSITION = 17
_CRC_START = 21
#: The second byte of the attributes, and their bit that says "part of a transaction".
_ATTRIBUTES_LOW = 22
_TRANSACTIONAL = 0x10
_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class ProducerId:
    id: int
    epoch: int


@dataclass(slots=True)
class Lane:
    """One producer id on one partition."""

    producer: ProducerId
    #: The topic's id as it was known when the lane began: a topic that is created again has another one.
    topic_id: bytes
    next_sequence: int = 0
    is_retired: bool = False
    #: A node did not know the batches before one of this lane: what it has not appended has to be numbered anew.
    is_lost: bool = False
    #: How many batches have a place in the sequence, and the numbers of those without an outcome, ascending (a dict: ordered).
    batch_count: int = 0
    open_batches: dict[int, None] = field(default_factory=dict)
    #: The numbers of batches that wait to be sent again: before them nothing may be sent that follows them.
    unsent: dict[int, None] = field(default_factory=dict)

    @property
    def has_room(self) -> bool:
        return not self.open_batches or self.batch_count - next(iter(self.open_batches)) < BATCHES_PER_LANE

    def take(self, record_count: int) -> tuple[int, int]:
        """(number in this lane, base sequence) of a batch of `record_count` records; there has to be room. Sequences wrap after
        2^31 - 1, as in Kafka."""
        assert self.has_room
        number, sequence = self.batch_count, self.next_sequence
        self.open_batches[number] = None
        self.batch_count += 1
        self.next_sequence = (sequence + record_count) & 0x7FFFFFFF
        return number, sequence

    def close(self, number: int) -> None:
        """This batch has its outcome."""
        self.open_batches.pop(number, None)


def stamp_producer(batch: bytearray, producer: ProducerId, base_sequence: int, *, is_transactional: bool = False) -> None:
    """Write producer id, epoch, base sequence and kind into an encoded batch (format v2) and renew its CRC."""
    low = batch[_ATTRIBUTES_LOW] & ~_TRANSACTIONAL
    batch[_ATTRIBUTES_LOW] = low | _TRANSACTIONAL if is_transactional else low
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer.id, producer.epoch, base_sequence)
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[_CRC_START:]))


class ProducerIds:
    """Producer ids of one producer object: the n-th lane of every partition shares the n-th id."""

    #: Under which batches are sent; None: they are part of no transaction.
    transactional_id: str | None = None

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._shared: dict[int, ProducerId] = {}
        self._asking: SharedWork[int, ProducerId] = SharedWork("producer id")

    async def shared(self, index: int, deadline: Deadline) -> ProducerId:
        """The id of this lane, which is asked for once; raises RequestRejected or NoReachableNode."""
        if index in self._shared:
            return self._shared[index]
        try:
            return await self._asking.result(index, lambda: self._learn(index, deadline), deadline)
        except TimeoutError:
            raise RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "no producer id yet") from None

    async def _learn(self, index: int, deadline: Deadline) -> ProducerId:
        self._shared[index] = await self.fresh(deadline)
        return self._shared[index]

    async def fresh(self, deadline: Deadline) -> ProducerId:
        """A producer id that was never used; raises RequestRejected or NoReachableNode."""
        backoff = Backoff(self._cluster.config.retry_backoff_ms, self._cluster.config.retry_backoff_ms_max)
        request = protocol.init_producer_id_request()
        while True:
            answer: InitProducerIdResponse
            answer, _ = await self._cluster.ask_any(
                ApiKey.INIT_PRODUCER_ID, protocol.INIT_PRODUCER_ID_VERSION, request, deadline
            )
            if answer.error_code == 0:
                return ProducerId(int(answer.producer_id), int(answer.producer_epoch))
            code = code_of(answer.error_code)
            if code not in RETRIABLE or deadline.is_over():
                raise RequestRejected(code, "no producer id")
            await backoff.pause(deadline)

    async def close(self) -> None:
        await self._asking.close()
