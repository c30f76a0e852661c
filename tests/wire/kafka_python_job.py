"""Prints what an older kafka-python is given of a partition, as a line of JSON: [offset, key, value] of each record.

Run as a process of its own: `python kafka_python_job.py SERVERS TOPIC POSITION`. It reads from POSITION to the end that it is
told first, and fails where its own position does not get there.
"""

from __future__ import annotations

import json
import sys
import time

from kafka import KafkaConsumer, TopicPartition

SECONDS = 60


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def main(servers: str, topic: str, position: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=servers.split(","), group_id=None, api_version=(2, 5, 0))
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, position)
    end = consumer.end_offsets([partition])[partition]
    seen, deadline = [], time.monotonic() + SECONDS
    while consumer.position(partition) < end:
        assert time.monotonic() < deadline, f"at {consumer.position(partition)} of {end} after {SECONDS} s: {seen}"
        for records in consumer.poll(timeout_ms=500).values():
            seen += [[record.offset, text(record.key), text(record.value)] for record in records]
    print(json.dumps(seen))
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
