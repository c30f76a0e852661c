package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.OffsetMessages.PartitionOffset;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/**
 * What readers of many partitions ask a quorum: which topics there are, where partitions begin and end, and bytes from any node.
 *
 * <p>Every call ends within the time-out that this was made with. Errors: {@link UnknownTopicException} where there is no such
 * topic or partition, {@link io.raftlake.spark.quorum.QuorumUnavailableException} where nobody could say in time, {@link
 * RefusedException} where trying again does not help. Thread-safe.
 */
public final class LogReads {
    /** The option that says how long one question is asked. */
    private static final String TIMEOUT = "kafka.default.api.timeout.ms";

    /** Stand for times in questions about offsets: the end, the log start, the same on local disks, the end of the tier. */
    public static final long LATEST = -1;
    public static final long EARLIEST = -2;
    public static final long EARLIEST_LOCAL = -4;
    public static final long LATEST_TIERED = -5;

    /**
     * A topic.
     *
     * @param id Kafka's base64 form of its uuid
     * @param replicas by partition the ids of the nodes that hold it, sorted
     */
    public record TopicInfo(String name, String id, List<List<Integer>> replicas) {
        public int partitions() {
            return replicas.size();
        }
    }

    private record Key(List<InetSocketAddress> servers, long timeoutMs, long attemptMs) {}

    private static final Map<Key, LogReads> OF_PROCESS = new ConcurrentHashMap<>();

    private final Cluster cluster;
    private final long timeoutMs;
    private final long attemptMs;

    private LogReads(Key key) {
        this.cluster = new Cluster(key.servers());
        this.timeoutMs = key.timeoutMs();
        this.attemptMs = key.attemptMs();
    }

    /**
     * The one of this process. {@code servers} as {@link Bootstrap#parse} gives them. One call takes {@code timeoutMs} at most,
     * and one request on one connection {@code attemptMs}; 0: as this client thinks right.
     */
    public static LogReads of(List<InetSocketAddress> servers, long timeoutMs, long attemptMs) {
        return OF_PROCESS.computeIfAbsent(
                new Key(servers, timeoutMs, attemptMs == 0 ? Tries.ATTEMPT_MS : attemptMs), LogReads::new);
    }

    Cluster cluster() {
        return cluster;
    }

    Tries tries(String what) {
        return new Tries(what, timeoutMs, attemptMs, TIMEOUT);
    }

    // --- topics ------------------------------------------------------------------------------------------------------

    /** Those of these topics that exist; all topics for null. */
    public List<TopicInfo> topics(Collection<String> names) throws IOException {
        List<TopicInfo> found = new ArrayList<>();
        for (Cluster.Known known : cluster.describe(names == null ? null : List.copyOf(names), tries("a look at topics"))) {
            found.add(info(known));
        }
        return found;
    }

    /** A topic, asked of every node until one knows it: topics reach the nodes one after another. */
    public Optional<TopicInfo> topic(String name) throws IOException {
        return cluster.topic(name, tries("a look at topic " + name)).map(LogReads::info);
    }

    /** The topic of this id. {@link OtherTopicException} where nodes know another one of the name alone. */
    public TopicInfo topic(String name, String id) throws IOException {
        return info(cluster.topic(name, id, tries("a look at topic " + name)));
    }

    private static TopicInfo info(Cluster.Known known) {
        return new TopicInfo(known.topic().name(), known.topic().id(), known.replicas());
    }

    /** The settings of a topic, as any node knows them. */
    public Map<String, String> topicConfigs(String topic) throws IOException {
        return configs(OffsetMessages.TOPIC, topic, "a look at the settings of topic " + topic);
    }

    /** The addresses of the nodes' HTTP listeners, "host:port"; those without one are left out. */
    public List<String> httpListeners() throws IOException {
        topics(List.of());
        List<String> found = new ArrayList<>();
        for (int node : new TreeSet<>(cluster.nodeIds())) {
            String listener = configs(OffsetMessages.NODE, Integer.toString(node), "a look at the settings of node " + node)
                    .get("http.listener");
            if (listener != null && !listener.isEmpty()) {
                found.add(listener.replaceFirst("^http://", ""));
            }
        }
        return found;
    }

    private Map<String, String> configs(int kind, String name, String what) throws IOException {
        Tries tries = tries(what);
        try {
            return cluster.askAny(Api.DESCRIBE_CONFIGS, OffsetMessages.configs(kind, name), tries, false,
                    OffsetMessages::configs);
        } catch (Refusal refusal) {
            throw refused(refusal, tries);
        }
    }

    static IOException refused(Refusal refusal, Tries tries) {
        String told = tries.what() + ": " + refusal.getMessage();
        return switch (refusal.code()) {
            case UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID -> new UnknownTopicException(told);
            case KAFKA_STORAGE_ERROR, OFFSET_MOVED_TO_TIERED_STORAGE -> new UnreadableLogException(told);
            default -> refusal.code().passes() ? tries.unavailable() : new RefusedException(told);
        };
    }

    // --- offsets -----------------------------------------------------------------------------------------------------

    /**
     * By partition: the offset of the first record at or after a time in ms since 1970, -1 where there is none; or what a
     * negative number stands for. {@code committed}: as readers of what transactions have committed see it. {@code id}: of the
     * topic, null for any. {@link OtherTopicException} where nodes know another one of the name alone.
     */
    public Map<Integer, Long> listOffsets(String topic, String id, Map<Integer, Long> times, boolean committed)
            throws IOException {
        return askLeaders(topic, id, times.keySet(), Api.LIST_OFFSETS, "a look at offsets of " + topic, numbers -> {
            Map<Integer, Long> its = new TreeMap<>(times);
            its.keySet().retainAll(numbers);
            return OffsetMessages.listOffsets(topic, its, committed);
        }, OffsetMessages::listOffsets);
    }

    /**
     * Linearizable ends (KIP-650 ReadOffset): every append that was acknowledged before this call lies below them. {@code id}
     * is that of {@link #listOffsets}.
     */
    public Map<Integer, Long> readOffset(String topic, String id, Collection<Integer> partitions) throws IOException {
        return askLeaders(topic, id, partitions, Api.READ_OFFSET, "a look at the ends of " + topic,
                numbers -> OffsetMessages.readOffset(topic, numbers), OffsetMessages::readOffset);
    }

    /** The same for readers of what is committed: below the first transaction that is open. */
    public Map<Integer, Long> readStableOffset(String topic, String id, Collection<Integer> partitions) throws IOException {
        Map<Integer, Long> ends = readOffset(topic, id, partitions);
        Map<Integer, Long> asked = new TreeMap<>();
        ends.keySet().forEach(number -> asked.put(number, LATEST));
        Map<Integer, Long> stable = new TreeMap<>(listOffsets(topic, id, asked, true));
        for (Map.Entry<Integer, Long> end : ends.entrySet()) {
            if (stable.get(end.getKey()) < end.getValue()) {
                // A transaction is open, or whoever answered has been replaced. A leader that has the end says which.
                stable.put(end.getKey(), stableOffset(new Partition(topic, end.getKey()), id, end.getValue()));
            }
        }
        return stable;
    }

    private long stableOffset(Partition at, String id, long end) throws IOException {
        Tries tries = tries("a look at the last stable offset of " + at);
        try {
            Out request = RecordMessages.fetch(at, end, 1, 0);
            RecordMessages.FetchAnswer answer =
                    cluster.askLeader(at, id, Api.FETCH, request, tries, 0, RecordMessages::fetch);
            if (answer.code() == Code.OFFSET_OUT_OF_RANGE) {
                throw new OffsetRangeException(at, end, answer.logStart(), answer.highWatermark());
            }
            return answer.lastStableOffset();
        } catch (Refusal refusal) {
            throw refused(refusal, tries);
        }
    }

    /** Each leader is asked for its partitions, until all of them are answered. */
    private Map<Integer, Long> askLeaders(String topic, String id, Collection<Integer> partitions, Api api, String what,
            Function<Collection<Integer>, Out> request, Cluster.Meaning<Map<Integer, PartitionOffset>> meaning)
            throws IOException {
        Tries tries = tries(what);
        Map<Integer, Long> found = new TreeMap<>();
        TreeSet<Integer> left = new TreeSet<>(partitions);
        while (!left.isEmpty()) {
            for (Map.Entry<InetSocketAddress, List<Integer>> group : byLeader(topic, id, left, tries).entrySet()) {
                ask(group.getKey(), api, request.apply(group.getValue()), meaning, tries).forEach((number, answer) -> {
                    if (answer.code() == Code.NONE) {
                        found.put(number, answer.offset());
                    } else {
                        tries.note(topic + "-" + number, answer.code().name());
                    }
                });
            }
            left.removeAll(found.keySet());
            if (!left.isEmpty()) {
                cluster.forget(topic);
                if (tries.isOver()) {
                    throw tries.unavailable();
                }
                tries.pause();
            }
        }
        return found;
    }

    private Map<InetSocketAddress, List<Integer>> byLeader(
            String topic, String id, Collection<Integer> numbers, Tries tries) throws IOException {
        Map<InetSocketAddress, List<Integer>> groups = new LinkedHashMap<>();
        for (int number : numbers) {
            Partition at = new Partition(topic, number);
            InetSocketAddress leader = cluster.leader(at, id, tries);
            if (leader == null) {
                tries.note(at.toString(), "no leader is known");
            } else {
                groups.computeIfAbsent(leader, absent -> new ArrayList<>()).add(number);
            }
        }
        return groups;
    }

    /** Nothing where the node gives no answer. Errors of partitions that do not pass are thrown. */
    private Map<Integer, PartitionOffset> ask(InetSocketAddress node, Api api, Out request,
            Cluster.Meaning<Map<Integer, PartitionOffset>> meaning, Tries tries) throws IOException {
        try {
            ByteBuffer answer = cluster.ask(node, api, request, tries.attemptMs(0));
            Map<Integer, PartitionOffset> found = meaning.of(answer);
            for (PartitionOffset each : found.values()) {
                if (!each.code().passes()) {
                    Refusal.unlessNone(each.code(), null);
                }
            }
            return found;
        } catch (Lost lost) {
            tries.note(node, lost);
        } catch (Refusal refusal) {
            if (!refusal.code().passes()) {
                throw refused(refusal, tries);
            }
            tries.note(node, refusal);
        }
        return new HashMap<>();
    }
}
