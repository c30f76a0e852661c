package io.raftlake.spark.connector.read;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.Selection;
import io.raftlake.spark.connector.TopicPartition;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.SortedMap;

/**
 * What one source of a query has finished, as it stands in the quorum: the layout of {@code raftlake/kv/query_positions.py},
 * where it is described. Times are ms since 1970.
 *
 * @param offsets of each partition the next one to read
 * @param writer tells a source from the others of its run
 * @param generation one more with each run
 */
record QueryPosition(SortedMap<TopicPartition, Long> offsets, long batchMs, long seenMs, Source source, String writer,
        long generation) {
    /**
     * A source of a run of a query.
     *
     * @param name of the query, empty without one
     * @param reads the option and its value
     */
    record Source(String query, String run, String name, String reads, String host, long pid) {
        /** Of a query that this process drives. {@code description}: what Spark tells of its batches, or null. */
        static Source here(String query, String run, String description, String reads) {
            int end = description == null ? -1 : description.lastIndexOf("\nid = " + query + "\n");
            String name = end < 0 ? "" : description.substring(0, end);
            String host;
            try {
                host = InetAddress.getLocalHost().getHostName();
            } catch (UnknownHostException unknown) {
                host = "localhost";
            }
            return new Source(query, run, name, reads, host, ProcessHandle.current().pid());
        }

        /** Of the source with this number among those of a query that read the same. */
        String key(int number) {
            return "/sources/" + TopicNotes.quoted(query) + "/positions/" + digest(reads) + (number > 0 ? "." + number : "");
        }
    }

    private static final int DIGEST_CHARACTERS = 16;
    private static final int READS_CHARACTERS_MAX = 200;
    private static final ObjectMapper MAPPER = new ObjectMapper();

    QueryPosition withGeneration(long other) {
        return new QueryPosition(offsets, batchMs, seenMs, source, writer, other);
    }

    QueryPosition withBatchMs(long other) {
        return new QueryPosition(offsets, other, seenMs, source, writer, generation);
    }

    /** What a source reads, in the words that both connectors use. */
    static String reads(Selection selection) {
        String told;
        if (selection instanceof Selection.Subscribe subscribe) {
            told = String.join(",", subscribe.topics());
        } else if (selection instanceof Selection.Assign assign) {
            told = String.join(",", assign.partitions().stream().map(String::valueOf).toList());
        } else {
            told = ((Selection.SubscribePattern) selection).pattern().pattern();
        }
        return selection.option() + " " + told;
    }

    byte[] encode() {
        ObjectNode facts = MAPPER.createObjectNode();
        ObjectNode topics = facts.putObject("offsets");
        for (Map.Entry<TopicPartition, Long> each : offsets.entrySet()) {
            ObjectNode topic = (ObjectNode) topics.get(each.getKey().topic());
            (topic == null ? topics.putObject(each.getKey().topic()) : topic)
                    .put(Integer.toString(each.getKey().partition()), each.getValue());
        }
        String reads = source.reads();
        facts.put("batch_ms", batchMs).put("seen_ms", seenMs).put("run", source.run()).put("writer", writer);
        facts.put("generation", generation).put("name", source.name());
        facts.put("reads", reads.substring(0, Math.min(reads.length(), READS_CHARACTERS_MAX)));
        facts.put("host", source.host()).put("pid", source.pid());
        try {
            return MAPPER.writeValueAsBytes(facts);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    /** Null where the value is no position. What is not needed to write the next one is not kept. */
    static QueryPosition decode(byte[] value) {
        try {
            JsonNode facts = MAPPER.readTree(value);
            if (facts == null || !facts.path("offsets").isObject()) {
                return null;
            }
            Source source = new Source("", facts.path("run").asText(""), "", "", "", 0);
            return new QueryPosition(OffsetJson.parse(facts.get("offsets").toString()), facts.path("batch_ms").asLong(0),
                    facts.path("seen_ms").asLong(0), source, facts.path("writer").asText(""),
                    facts.path("generation").asLong(0));
        } catch (IOException | IllegalArgumentException none) {
            return null;
        }
    }

    private static String digest(String text) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(hash).substring(0, DIGEST_CHARACTERS);
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
