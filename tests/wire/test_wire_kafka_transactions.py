"""Kafka's own transactional producer and `kafka-transactions` (4.3.1, Java) at a quorum of ours."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raftlake import Client, LocalQuorum
from waitkit import wait_until

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

BESIDE = """
import java.net.URI;
import java.net.http.*;
import java.util.*;
import java.util.regex.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.*;
public class Beside {
    static final HttpClient HTTP = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).build();
    static KafkaProducer<String, String> producer(String servers, String id) {
        var made = new KafkaProducer<String, String>(Map.of("bootstrap.servers", servers, "transactional.id", id),
            new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }
    static void send(KafkaProducer<String, String> producer, String topic, String value) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, value));
        producer.flush();
    }
    static String number(String row, String name) {
        var found = Pattern.compile("\\"" + name + "\\":([0-9]+)").matcher(row);
        found.find();
        return found.group(1);
    }
    static int post(String front, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(front + "/v1/txn")).header("content-type", "application/json");
        var answer = HTTP.send(request.POST(HttpRequest.BodyPublishers.ofString(body)).build(),
            HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() == 400) System.out.println(body + " is answered " + answer.body());
        return answer.statusCode();
    }
    public static void main(String[] args) throws Exception {
        var servers = args[0];
        var front = args[1];
        var topic = args[2];
        var first = producer(servers, topic);
        send(first, topic, "first");
        var key = HttpRequest.newBuilder(URI.create(front + "/v1/kv/%2Fraftlake%2Ftransactions%2F" + topic)).build();
        var row = HTTP.send(key, HttpResponse.BodyHandlers.ofString()).body();
        var command = "{\\"ops\\":[{\\"end_txn\\":{\\"producer_id\\":" + number(row, "producer_id")
            + ",\\"epoch\\":" + number(row, "epoch") + ",\\"commit\\":true}}]}";
        System.out.println("command " + post(front, command));
        first.commitTransaction();
        System.out.println("again " + post(front, command));
        send(first, topic, "next");
        System.out.println("amid " + post(front, command));
        first.commitTransaction();
        send(first, topic, "more");
        row = HTTP.send(key, HttpResponse.BodyHandlers.ofString()).body();
        System.out.println("ended " + post(front, "{\\"ops\\":[{\\"end_txn\\":{\\"producer_id\\":" + number(row, "producer_id")
            + ",\\"epoch\\":" + number(row, "epoch") + ",\\"commit\\":true}}]}"));
        Thread.sleep(1000);
        try {
            first.abortTransaction();
            System.out.println("not fenced");
        } catch (KafkaException refused) {
            System.out.println("refused");
        }
        var second = producer(servers, topic);
        send(second, topic, "second");
        System.out.println("late " + post(front, command));
        second.commitTransaction();
        System.out.println("done");
        Runtime.getRuntime().halt(0);
    }
}
"""


def test_kafkas_producer_goes_on_where_a_command_ended_its_transaction(
    quorum: LocalQuorum, new_topic: NewTopicName, kafka_tool: Tool, tmp_path: Path
) -> None:
    """Its own commit succeeds, since that is decided, and gives the next epoch. Its own abort is refused. A late command ends
    no other transaction of the id."""
    topic = new_topic()
    story = tmp_path / "Beside.java"
    story.write_text(BESIDE)
    front = f"http://{quorum.http_servers.split(',')[0]}"
    told = kafka_tool(str(story), quorum.bootstrap_servers, front, topic).stdout
    lines = [
        line
        for line in told.splitlines()
        if line.split(" ")[0] in ("command", "again", "amid", "ended", "refused", "late", "done", "not")
    ]
    assert lines == ["command 200", "again 412", "amid 412", "ended 200", "refused", "late 412", "done"], told
    with Client(quorum.bootstrap_servers) as client:
        assert [record.value for record in client.read(topic, 0, 0)] == [b"first", b"next", b"more", b"second"]


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


def open_at(tool: Tool, quorum: LocalQuorum, topic: str) -> list[str]:
    """Where the open transactions of partition 0 begin."""
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    output = tool(TOOL, *at, "describe-producers", "--topic", topic, "--partition", "0").stdout
    last = [line.split()[-1] for line in output.splitlines() if re.match(r"\d", line)]
    assert last, output
    return [offset for offset in last if offset.isdigit()]


def test_kafka_transactions_describes_and_ends_what_is_open(
    quorum: LocalQuorum, kafka_tool: Tool, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    name = f"open-{topic}"
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    described = kafka_tool(TOOL, *at, "describe", "--transactional-id", name).stdout
    assert "Ongoing" in described and f"{topic}-0" in described, described
    (start,) = open_at(kafka_tool, quorum, topic)
    # It does not hang: its coordinator knows it, and ends it as a whole.
    refused = kafka_tool(TOOL, *at, "abort", "--topic", topic, "--partition", "0", "--start-offset", start, check=False)
    assert refused.returncode != 0 and open_at(kafka_tool, quorum, topic) == [start]
    kafka_tool(TOOL, *at, "forceTerminateTransaction", "--transactionalId", name)
    wait_until(lambda: not open_at(kafka_tool, quorum, topic), "the transaction is aborted", seconds=60)
