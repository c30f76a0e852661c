"""Kafka's own transactional producer and `kafka-transactions` (4.3.1, Java) at a quorum of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlake import LocalQuorum

pytestmark = pytest.mark.java

NewTopicName = Callable[..., str]
Tool = Callable[..., "subprocess.CompletedProcess[str]"]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
STORY = """
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;
public class Story {
    static KafkaProducer<String, String> producer(String servers, String id) {
        var made = new KafkaProducer<String, String>(Map.of("bootstrap.servers", servers, "transactional.id", id),
            new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }
    public static void main(String[] args) throws Exception {
        var servers = args[0];
        var topic = args[1];
        var first = producer(servers, topic);
        long began = System.nanoTime();
        for (int number = 0; number < 20; number++) {
            first.beginTransaction();
            for (int partition = 0; partition < 2; partition++)
                first.send(new ProducerRecord<>(topic, partition, null, (number % 2 == 0 ? "kept" : "lost") + number));
            if (number % 2 == 0) first.commitTransaction(); else first.abortTransaction();
        }
        System.out.println("transactions ms=" + (System.nanoTime() - began) / 1_000_000);
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "lost-late"));
        first.flush();
        var second = producer(servers, topic);
        try {
            first.send(new ProducerRecord<>(topic, 0, null, "lost-later"));
            first.commitTransaction();
            System.out.println("not fenced");
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            System.out.println("fenced");
        }
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, 0, null, "kept-last"));
        second.commitTransaction();
        var open = producer(servers, topic + "-open");
        open.beginTransaction();
        open.send(new ProducerRecord<>(topic, 1, null, "lost-open"));
        open.flush();
        var consumer = new KafkaConsumer<String, String>(
            Map.of("bootstrap.servers", servers, "isolation.level", "read_committed"),
            new StringDeserializer(), new StringDeserializer());
        consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
        consumer.seekToBeginning(consumer.assignment());
        var values = new ArrayList<String>();
        for (int polls = 0; polls < 20 && values.size() < 21; polls++)
            for (var each : consumer.poll(Duration.ofMillis(500))) values.add(each.value());
        for (var each : consumer.poll(Duration.ofMillis(1000))) values.add(each.value());
        Collections.sort(values);
        System.out.println("read " + String.join(" ", values));
        // The transaction stays open when the process ends.
        Runtime.getRuntime().halt(0);
    }
}
"""


def test_kafkas_producer_commits_aborts_and_is_fenced_and_its_tool_sees_it(
    quorum: LocalQuorum, new_topic: NewTopicName, kafka_tool: Tool, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    story = tmp_path / "Story.java"
    story.write_text(STORY)
    told = kafka_tool(str(story), quorum.bootstrap_servers, topic).stdout
    assert "\nfenced" in told, told
    committed = sorted([f"kept{number}" for number in range(0, 20, 2) for _ in range(2)] + ["kept-last"])
    assert f"read {' '.join(committed)}\n" in told, told

    at = ("--bootstrap-server", quorum.bootstrap_servers)
    listed = kafka_tool(TOOL, *at, "list").stdout.splitlines()
    rows = {fields[0]: fields[-1] for line in listed[1:] if (fields := line.split())}
    assert (rows[topic], rows[f"{topic}-open"]) == ("CompleteCommit", "Ongoing")
    assert len([line for line in listed if line.startswith(f"{topic} ")]) == 1, "one node coordinates"
    (described,) = kafka_tool(TOOL, *at, "describe", "--transactional-id", f"{topic}-open").stdout.splitlines()[1:]
    assert f"{topic}-1" in described and "Ongoing" in described
    hanging = kafka_tool(TOOL, *at, "find-hanging", "--topic", topic, "--max-transaction-timeout", "15").stdout
    assert hanging.splitlines()[1:] == [], "it is open, and does not hang"
