"""Transactions of librdkafka, one after the other, until stdin is closed: `transact_confluent.py SERVERS TOPIC ID`.

What it says is told in `tests/kits/outcomekit.py`. An error that asks for an abort gets one; after any other error the next
producer of the same id goes on.
"""

from __future__ import annotations

import itertools
import select
import sys
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

CALL_SECONDS = 30
PARTITIONS = 6


def say(what: str, number: int) -> None:
    print(what, number, flush=True)


def is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def again(call: Callable[[], None]) -> None:
    """librdkafka leaves it to its user to repeat what may be repeated."""
    for _ in range(5):
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
    raise TimeoutError("a call of librdkafka that may be repeated failed five times")


def new_producer(servers: str, name: str) -> Producer:
    settings = {"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0}
    limits = {"transaction.timeout.ms": 30_000, "message.timeout.ms": 30_000, "socket.timeout.ms": 10_000}
    producer = Producer(settings | limits)
    again(lambda: producer.init_transactions(CALL_SECONDS))
    return producer


def transact(producer: Producer, topic: str, number: int) -> None:
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, b"%d" % number, partition=partition)
    if number % 2 == 1:
        producer.flush(CALL_SECONDS)
        again(lambda: producer.abort_transaction(CALL_SECONDS))
        say("aborted", number)
    else:
        again(lambda: producer.commit_transaction(CALL_SECONDS))
        say("committed", number)


def main(servers: str, topic: str, name: str) -> None:
    producer = new_producer(servers, name)
    for number in itertools.count():
        if is_over():
            return
        say("begun", number)
        try:
            try:
                transact(producer, topic, number)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                again(lambda: producer.abort_transaction(CALL_SECONDS))  # noqa: B023
                say("aborted", number)
        except KafkaException as error:
            print(number, error, file=sys.stderr)
            producer = new_producer(servers, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
