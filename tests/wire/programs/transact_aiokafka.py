"""Transactions of aiokafka, one after the other, until stdin is closed: `transact_aiokafka.py SERVERS TOPIC ID`.

What it says is told in `tests/kits/outcomekit.py`. With `read` in front, `read SERVERS TOPIC`, it prints `PARTITION VALUE` of
each committed record instead; with `plain` in front, an idempotent producer that is in no transaction writes the numbers.
"""

from __future__ import annotations

import asyncio
import itertools
import select
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

CALL_SECONDS = 60
PARTITIONS = 6


def say(what: str, number: int) -> None:
    print(what, number, flush=True)


def is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


async def new_producer(servers: str, name: str | None) -> AIOKafkaProducer:
    kind = {"transactional_id": name, "transaction_timeout_ms": 30_000} if name else {"enable_idempotence": True}
    producer = AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=10_000, metadata_max_age_ms=5_000, **kind)
    await producer.start()
    return producer


async def transact(producer: AIOKafkaProducer, topic: str, number: int) -> None:
    await producer.begin_transaction()
    try:
        sent = [await producer.send(topic, b"%d" % number, partition=partition) for partition in range(PARTITIONS)]
        await asyncio.gather(*sent)
        if number % 2 == 0:
            await producer.commit_transaction()
            say("committed", number)
            return
    except KafkaError as error:
        # A producer that is fenced, or may not go on, refuses the abort too.
        print(number, repr(error), file=sys.stderr)
    await producer.abort_transaction()
    say("aborted", number)


async def write_transactions(servers: str, topic: str, name: str) -> None:
    producer = await new_producer(servers, name)
    for number in itertools.count():
        if is_over():
            break
        say("begun", number)
        try:
            await asyncio.wait_for(transact(producer, topic, number), CALL_SECONDS)
        except (KafkaError, TimeoutError) as error:
            print(number, repr(error), file=sys.stderr)
            await producer.stop()
            producer = await new_producer(servers, name)
    await producer.stop()


async def write_plain(servers: str, topic: str) -> None:
    """Each number is acknowledged before the next one. What aiokafka gives up may be there all the same."""
    producer = await new_producer(servers, None)
    for number in itertools.count():
        if is_over():
            break
        say("begun", number)
        try:
            for partition in range(PARTITIONS):
                await producer.send_and_wait(topic, b"%d" % number, partition=partition)
            say("committed", number)
        except KafkaError as error:
            print(number, repr(error), file=sys.stderr)
    await producer.stop()


async def read(servers: str, topic: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False)
    await consumer.start()
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(partitions)
    await consumer.seek_to_beginning(*partitions)
    ends = await consumer.end_offsets(partitions)
    while any([await consumer.position(each) < ends[each] for each in partitions]):
        found = await consumer.getmany(timeout_ms=500)
        for partition, records in found.items():
            for record in records:
                print(partition.partition, record.value.decode())
    await consumer.stop()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["read", servers, topic]:
            asyncio.run(read(servers, topic))
        case ["plain", servers, topic]:
            asyncio.run(write_plain(servers, topic))
        case [servers, topic, name]:
            asyncio.run(write_transactions(servers, topic, name))
