package io.raftlake.spark.connector;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * The JSON in which users, checkpoints and Spark's Kafka connector write offsets: {@code {"topic":{"0":23,"1":-2}}}. An offset
 * is the next one to read, so an end offset is exclusive. {@value #LATEST} stands for the latest offset and {@value #EARLIEST}
 * for the earliest, in options only.
 */
public final class OffsetJson {
    public static final long LATEST = -1;
    public static final long EARLIEST = -2;

    private static final ObjectMapper MAPPER = new ObjectMapper(new JsonFactory().enable(
            JsonParser.Feature.STRICT_DUPLICATE_DETECTION)).enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
    private static final String OFFSETS_EXAMPLE = "{\"topicA\":{\"0\":23,\"1\":-1},\"topicB\":{\"0\":-2}}";
    private static final String PARTITIONS_EXAMPLE = "{\"topicA\":[0,1],\"topicB\":[2,4]}";

    private OffsetJson() {}

    /** Offsets sorted by topic and partition; IllegalArgumentException for a text that is something else. */
    public static SortedMap<TopicPartition, Long> parse(String text) {
        SortedMap<TopicPartition, Long> found = new TreeMap<>();
        for (Map.Entry<String, JsonNode> topic : document(text, OFFSETS_EXAMPLE).properties()) {
            if (!topic.getValue().isObject()) {
                throw new IllegalArgumentException(
                        "Expected offsets per partition for topic '" + topic.getKey() + "', got " + topic.getValue());
            }
            for (Map.Entry<String, JsonNode> partition : topic.getValue().properties()) {
                found.put(new TopicPartition(topic.getKey(), number(topic.getKey(), partition.getKey())),
                        offset(topic.getKey(), partition.getKey(), partition.getValue()));
            }
        }
        return found;
    }

    private static int number(String topic, String text) {
        if (!text.matches("[0-9]{1,9}")) {
            throw new IllegalArgumentException("Topic '" + topic + "': '" + text + "' is not a partition number");
        }
        return Integer.parseInt(text);
    }

    private static long offset(String topic, String partition, JsonNode value) {
        if (!value.isIntegralNumber() || !value.canConvertToLong() || value.longValue() < EARLIEST) {
            throw new IllegalArgumentException("Topic '" + topic + "', partition " + partition + ": " + value
                    + " is not an offset");
        }
        return value.longValue();
    }

    /** Partitions by topic, as the option {@code assign} has them. */
    static SortedSet<TopicPartition> parsePartitions(String text) {
        SortedSet<TopicPartition> found = new TreeSet<>();
        for (Map.Entry<String, JsonNode> topic : document(text, PARTITIONS_EXAMPLE).properties()) {
            if (!topic.getValue().isArray()) {
                throw unexpected(text, PARTITIONS_EXAMPLE);
            }
            for (JsonNode partition : topic.getValue()) {
                if (!partition.isIntegralNumber() || !partition.canConvertToInt() || partition.intValue() < 0) {
                    throw unexpected(text, PARTITIONS_EXAMPLE);
                }
                found.add(new TopicPartition(topic.getKey(), partition.intValue()));
            }
        }
        return found;
    }

    /** As Spark keeps it in the checkpoint: sorted, since Spark compares texts to see whether there is anything new. */
    public static String of(SortedMap<TopicPartition, Long> offsets) {
        StringWriter text = new StringWriter();
        try (JsonGenerator json = MAPPER.createGenerator(text)) {
            String topic = null;
            json.writeStartObject();
            for (Map.Entry<TopicPartition, Long> entry : offsets.entrySet()) {
                if (!entry.getKey().topic().equals(topic)) {
                    if (topic != null) {
                        json.writeEndObject();
                    }
                    topic = entry.getKey().topic();
                    json.writeObjectFieldStart(topic);
                }
                json.writeNumberField(Integer.toString(entry.getKey().partition()), entry.getValue());
            }
            if (topic != null) {
                json.writeEndObject();
            }
            json.writeEndObject();
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
        return text.toString();
    }

    private static JsonNode document(String text, String example) {
        try {
            JsonNode root = MAPPER.readTree(text);
            if (root != null && root.isObject()) {
                return root;
            }
        } catch (IOException noJson) {
            throw new IllegalArgumentException(unexpected(text, example).getMessage(), noJson);
        }
        throw unexpected(text, example);
    }

    private static IllegalArgumentException unexpected(String text, String example) {
        return new IllegalArgumentException("Expected e.g. " + example + ", got " + text);
    }
}
