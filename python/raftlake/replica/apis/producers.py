"""InitProducerId (22): ids for idempotent producers. Those with a transactional id have a coordinator (`transactions`).

Whatever id and epoch a producer names as its own (KIP-360), it gets a new id. Kafka's TransactionCoordinator does the same
where there is no transactional id: Java and franz-go count the epoch of such a producer on by themselves, and librdkafka takes
what it is given. So no client moves the epoch of another producer's id by asking, and an answer costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.replica.apis.answers import Answers, kafka_error
from raftlake.replica.apis.transactions import init_producer
from raftlake.replica.config import ClientContext
from raftlake.replica.opaque import no_keys
from raftlake.replica.refused_for_good import PRODUCER
from raftlake.replica.services import Services


def init_producer_id(node: Services, request: Any, client: ClientContext, reply: Callable[[object], None]) -> None:
    answers = Answers(request)

    def answer(error: ErrorCode, producer_id: int = -1, epoch: int = -1) -> None:
        reply(
            answers.make("InitProducerIdResponse", error_code=kafka_error(error), producer_id=producer_id, producer_epoch=epoch)
        )

    if node.engine.config.is_opaque:
        # The one error that every client takes for final; ids are handed out from a key, and there are none.
        error = ErrorCode.UNSUPPORTED_VERSION
        node.refused_for_good.note_error(PRODUCER, client.client_id or "", error, no_keys(node.engine.config), client)
        answer(error)
        return
    if request.transactional_id is not None:
        init_producer(node, request, client, lambda told: answer(told.error, told.producer_id, told.epoch))
        return
    node.producer_ids.take(
        lambda producer_id: (
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if producer_id is None else answer(ErrorCode.NONE, producer_id, 0)
        )
    )
