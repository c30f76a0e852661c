"""An ordinary Kafka client, no raftlake code:
python examples/kafka_client.py 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094

Needs confluent-kafka. The idempotent producer works; consumer groups do not exist, so partitions are assigned.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers = sys.argv[1]
admin = AdminClient({"bootstrap.servers": servers})
if "kafka-example" not in admin.list_topics(timeout=10).topics:
    admin.create_topics([NewTopic("kafka-example", num_partitions=1)])["kafka-example"].result(20)

offsets: list[int] = []
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
for number in range(10):
    producer.produce(
        "kafka-example",
        f"message {number}".encode(),
        partition=0,
        on_delivery=lambda _error, message: offsets.append(message.offset()),
    )
assert producer.flush(20) == 0

consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
consumer.assign([TopicPartition("kafka-example", 0, offsets[0])])
for message in consumer.consume(10, timeout=20):
    value = message.value()
    assert message.error() is None
    assert value is not None
    print(f"offset {message.offset()}: {value.decode()}")
consumer.close()
