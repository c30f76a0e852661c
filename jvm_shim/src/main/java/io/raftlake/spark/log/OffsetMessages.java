package io.raftlake.spark.log;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The bodies of ListOffsets, ReadOffset and DescribeConfigs, as far as readers of many partitions ask. */
final class OffsetMessages {
    private static final int CONSUMER = -1;
    private static final int NO_EPOCH = -1;

    /** Where a config comes from (DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG). */
    private static final int SET_FOR_TOPIC = 1;

    /** Kinds of resources that have configs (org.apache.kafka.common.config.ConfigResource). */
    static final int TOPIC = 2;
    static final int NODE = 4;

    /** What an answer says of one partition. */
    record PartitionOffset(Code code, long offset) {}

    private record Numbered(int partition, PartitionOffset found) {}

    private OffsetMessages() {}

    /** {@code times} by partition: ms since 1970, or one of the negative numbers that stand for a place of the log. */
    static Out listOffsets(String name, Map<Integer, Long> times, boolean committed) {
        return new Out()
                .i32(CONSUMER)
                .i8(committed ? 1 : 0)
                .array(List.of(name), (topic, same) -> topic.text(name)
                        .array(times.entrySet(), (partition, each) ->
                                partition.i32(each.getKey()).i32(NO_EPOCH).i64(each.getValue())))
                .noTags();
    }

    static Map<Integer, PartitionOffset> listOffsets(ByteBuffer answer) throws IOException {
        return In.answer(answer, "ListOffsets", in -> {
            in.i32();
            return partitions(in, partition -> {
                int number = partition.i32();
                Code code = partition.code();
                partition.i64();
                long offset = partition.i64();
                partition.i32();
                return new Numbered(number, new PartitionOffset(code, offset));
            });
        });
    }

    static Out readOffset(String name, Collection<Integer> numbers) {
        return new Out()
                .text(null)
                .i64(System.currentTimeMillis())
                .array(List.of(name), (topic, same) -> topic.text(name)
                        .array(numbers, (partition, number) -> partition.i32(number)))
                .noTags();
    }

    static Map<Integer, PartitionOffset> readOffset(ByteBuffer answer) throws IOException, Refusal {
        Code[] top = new Code[1];
        Map<Integer, PartitionOffset> found = In.answer(answer, "ReadOffset", in -> {
            in.text();
            top[0] = in.code();
            return top[0] != Code.NONE ? null : partitions(in, partition -> {
                int number = partition.i32();
                Code code = partition.code();
                long offset = partition.i64();
                partition.i32();
                partition.i32();
                return new Numbered(number, new PartitionOffset(code, offset));
            });
        });
        Refusal.unlessNone(top[0], null);
        return found;
    }

    /** All partitions of all topics of an answer. */
    private static Map<Integer, PartitionOffset> partitions(In in, In.Reading<Numbered> partition) {
        Map<Integer, PartitionOffset> found = new TreeMap<>();
        in.array(topic -> {
            topic.text();
            return topic.array(partition);
        }).forEach(each -> each.forEach(numbered -> found.put(numbered.partition(), numbered.found())));
        return found;
    }

    /** The configs of one topic, or of one node by its id. */
    static Out configs(int kind, String name) {
        return new Out()
                .array(List.of(name), (resource, same) -> resource.i8(kind).text(name).uvarint(0))
                .bool(false)
                .bool(false)
                .noTags();
    }

    /** By name; those without a value are left out. */
    static Map<String, String> configs(ByteBuffer answer) throws IOException, Refusal {
        return configs(answer, false);
    }

    /** Those that were set for the topic itself. */
    static Map<String, String> configsOfTopic(ByteBuffer answer) throws IOException, Refusal {
        return configs(answer, true);
    }

    private static Map<String, String> configs(ByteBuffer answer, boolean ofTopic) throws IOException, Refusal {
        Code[] code = new Code[1];
        String[] told = new String[1];
        Map<String, String> found = new HashMap<>();
        In.answer(answer, "DescribeConfigs", in -> {
            in.i32();
            Messages.requireOne(in);
            code[0] = in.code();
            told[0] = in.text();
            in.i8();
            in.text();
            return in.array(config -> config(config, ofTopic, found));
        });
        Refusal.unlessNone(code[0], told[0]);
        return found;
    }

    private static Object config(In in, boolean ofTopic, Map<String, String> found) {
        String name = in.text();
        String value = in.text();
        in.bool();
        boolean isWanted = in.i8() == SET_FOR_TOPIC || !ofTopic;
        in.bool();
        in.array(synonym -> {
            synonym.text();
            synonym.text();
            return synonym.i8();
        });
        in.i8();
        in.text();
        if (value != null && isWanted) {
            found.put(name, value);
        }
        return name;
    }
}
