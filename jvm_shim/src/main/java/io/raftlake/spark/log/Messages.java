package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The bodies of requests and answers about topics and offsets; those with records are {@link RecordMessages}'. */
final class Messages {
    /** ListOffsets: the log start. */
    private static final long EARLIEST = -2;

    private static final int NO_EPOCH = -1;

    /** By partition the ids of the leader, -1 for none, and of the nodes that hold it. */
    record TopicMetadata(Code code, String name, String id, List<Integer> leaders, List<List<Integer>> replicas) {}

    record Metadata(Map<Integer, InetSocketAddress> nodes, List<TopicMetadata> topics) {}

    private record Node(int id, InetSocketAddress address) {}

    private record PartitionNodes(int partition, int leader, List<Integer> replicas) {}

    private record Outcome(Code code, String told, long offset) {
        /** The offset. */
        long require() throws Refusal {
            Refusal.unlessNone(code, told);
            return offset;
        }
    }

    private Messages() {}

    // --- metadata ----------------------------------------------------------------------------------------------------

    /** Of these topics, or of all of them for null. None is created by asking. */
    static Out metadata(List<String> names) {
        Out out = new Out();
        if (names == null) {
            out.uvarint(0);
        } else {
            out.array(names, (item, name) -> item.noId().text(name));
        }
        return out.bool(false).bool(false).noTags();
    }

    /** Refused where the node cannot say what exists, since it hears of no leader. */
    static Metadata metadata(ByteBuffer answer) throws IOException, Refusal {
        Metadata[] found = new Metadata[1];
        int controller = In.answer(answer, "Metadata", in -> {
            in.i32();
            Map<Integer, InetSocketAddress> nodes = new HashMap<>();
            in.array(Messages::node).forEach(node -> nodes.put(node.id(), node.address()));
            in.text();
            int id = in.i32();
            found[0] = new Metadata(nodes, in.array(Messages::topic));
            return id;
        });
        boolean isUnsettled = found[0].topics().stream().anyMatch(topic -> topic.code() == Code.LEADER_NOT_AVAILABLE);
        if (controller < 0 || isUnsettled) {
            throw new Refusal(Code.LEADER_NOT_AVAILABLE, "it hears of no leader of the quorum");
        }
        for (TopicMetadata topic : found[0].topics()) {
            if (topic.code() != Code.NONE && topic.code() != Code.UNKNOWN_TOPIC_OR_PARTITION) {
                throw new Refusal(topic.code(), "topic '" + topic.name() + "'");
            }
        }
        return found[0];
    }

    private static Node node(In in) {
        int id = in.i32();
        String host = in.text();
        InetSocketAddress address = InetSocketAddress.createUnresolved(host, in.i32());
        in.text();
        return new Node(id, address);
    }

    private static TopicMetadata topic(In in) {
        Code code = in.code();
        String name = in.text();
        ByteBuffer id = in.slice(16);
        in.bool();
        List<PartitionNodes> partitions = in.array(partition -> {
            partition.code();
            int index = partition.i32();
            int leader = partition.i32();
            partition.i32();
            List<Integer> replicas = partition.numbers();
            partition.numbers();
            partition.numbers();
            return new PartitionNodes(index, leader, replicas.stream().sorted().toList());
        });
        in.i32();
        Integer[] leaders = new Integer[partitions.size()];
        List<List<Integer>> replicas = new ArrayList<>(Collections.nCopies(partitions.size(), List.of()));
        for (PartitionNodes each : partitions) {
            if (each.partition() < 0 || each.partition() >= leaders.length) {
                throw new In.Malformed("partition " + each.partition() + " of " + leaders.length);
            }
            leaders[each.partition()] = each.leader();
            replicas.set(each.partition(), each.replicas());
        }
        return new TopicMetadata(code, name, base64(id), List.of(leaders), replicas);
    }

    private static String base64(ByteBuffer id) {
        byte[] bytes = new byte[id.remaining()];
        id.get(bytes);
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    // --- topics ------------------------------------------------------------------------------------------------------

    static Out createTopic(String name, int partitions, Map<String, String> configs, int timeoutMs) {
        return new Out()
                .array(List.of(name), (topic, same) -> topic.text(name)
                        .i32(partitions)
                        .i16(-1)
                        .array(List.of(), (none, nothing) -> {})
                        .array(configs.entrySet(), (config, each) -> config.text(each.getKey()).text(each.getValue())))
                .i32(timeoutMs)
                .bool(false)
                .noTags();
    }

    /** The id of the topic; an answer that refuses throws. */
    static String createTopic(ByteBuffer answer) throws IOException, Refusal {
        String[] id = new String[1];
        Outcome outcome = In.answer(answer, "CreateTopics", in -> {
            in.i32();
            requireOne(in);
            in.text();
            id[0] = base64(in.slice(16));
            return new Outcome(in.code(), in.text(), 0);
        });
        outcome.require();
        return id[0];
    }

    static Out createPartitions(String name, int partitions, int timeoutMs) {
        return new Out()
                .array(List.of(name), (topic, same) -> topic.text(name).i32(partitions).uvarint(0))
                .i32(timeoutMs)
                .bool(false)
                .noTags();
    }

    static Void createPartitions(ByteBuffer answer) throws IOException, Refusal {
        Outcome outcome = In.answer(answer, "CreatePartitions", in -> {
            in.i32();
            requireOne(in);
            in.text();
            return new Outcome(in.code(), in.text(), 0);
        });
        outcome.require();
        return null;
    }

    /** {@code id} in base64: another topic of the same name stays. */
    static Out deleteTopic(String id, int timeoutMs) {
        byte[] bytes = Base64.getUrlDecoder().decode(id);
        return new Out()
                .array(List.of(id), (topic, same) -> topic.text(null).raw(bytes, 0, bytes.length))
                .i32(timeoutMs)
                .noTags();
    }

    /** False of a node that does not know the topic, and may lag behind: that is no error, and nothing done either. */
    static Boolean deleteTopic(ByteBuffer answer) throws IOException, Refusal {
        Outcome outcome = In.answer(answer, "DeleteTopics", in -> {
            in.i32();
            requireOne(in);
            in.text();
            in.slice(16);
            return new Outcome(in.code(), in.text(), 0);
        });
        if (outcome.code() == Code.UNKNOWN_TOPIC_ID || outcome.code() == Code.UNKNOWN_TOPIC_OR_PARTITION) {
            return false;
        }
        outcome.require();
        return true;
    }

    // --- offsets -----------------------------------------------------------------------------------------------------

    static Out earliest(Partition at) {
        return new Out()
                .i32(-1)
                .i8(0)
                .array(List.of(at), (topic, same) -> topic.text(at.topic())
                        .array(List.of(at), (partition, one) -> partition.i32(at.partition()).i32(NO_EPOCH).i64(EARLIEST)))
                .noTags();
    }

    static long earliest(ByteBuffer answer) throws IOException, Refusal {
        Outcome outcome = In.answer(answer, "ListOffsets", in -> {
            in.i32();
            requireOne(in);
            in.text();
            requireOne(in);
            in.i32();
            Code code = in.code();
            in.i64();
            return new Outcome(code, null, in.i64());
        });
        return outcome.require();
    }

    static Out readOffset(Partition at) {
        return new Out()
                .text(null)
                .i64(System.currentTimeMillis())
                .array(List.of(at), (topic, same) -> topic.text(at.topic())
                        .array(List.of(at), (partition, one) -> partition.i32(at.partition())))
                .noTags();
    }

    static long readOffset(ByteBuffer answer) throws IOException, Refusal {
        Outcome outcome = In.answer(answer, "ReadOffset", in -> {
            in.text();
            Code top = in.code();
            if (top != Code.NONE) {
                return new Outcome(top, null, -1);
            }
            requireOne(in);
            in.text();
            requireOne(in);
            in.i32();
            return new Outcome(in.code(), null, in.i64());
        });
        return outcome.require();
    }

    static Out deleteRecords(Partition at, long beforeOffset, int timeoutMs) {
        return new Out()
                .array(List.of(at), (topic, same) -> topic.text(at.topic())
                        .array(List.of(at), (partition, one) -> partition.i32(at.partition()).i64(beforeOffset)))
                .i32(timeoutMs)
                .noTags();
    }

    static Void deleteRecords(ByteBuffer answer) throws IOException, Refusal {
        Outcome outcome = In.answer(answer, "DeleteRecords", in -> {
            in.i32();
            requireOne(in);
            in.text();
            requireOne(in);
            in.i32();
            long low = in.i64();
            return new Outcome(in.code(), null, low);
        });
        outcome.require();
        return null;
    }

    // --- producers ---------------------------------------------------------------------------------------------------

    static Out initProducerId() {
        return new Out().text(null).i32(60_000).i64(-1).i16(-1).noTags();
    }

    static ProducerId initProducerId(ByteBuffer answer) throws IOException, Refusal {
        Code[] code = new Code[1];
        ProducerId made = In.answer(answer, "InitProducerId", in -> {
            in.i32();
            code[0] = in.code();
            return new ProducerId(in.i64(), in.i16());
        });
        Refusal.unlessNone(code[0], null);
        return made;
    }

    /** The count of an array, which has to be one: that is how much was asked for. */
    static void requireOne(In in) {
        int count = in.uvarint() - 1;
        if (count != 1) {
            throw new In.Malformed("it is about " + count + " topics or partitions, and one was asked for");
        }
    }
}
