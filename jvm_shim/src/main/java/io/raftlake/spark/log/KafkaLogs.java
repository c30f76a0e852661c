package io.raftlake.spark.log;

import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/** The logs of a quorum of raftlake nodes, over the Kafka protocol that they speak. */
public final class KafkaLogs implements Logs {
    /**
     * What a read got, undecoded: {@code data} goes to {@link Batches}, with the aborted transactions. Records below the offset
     * that was asked for may come first.
     */
    public record FetchedBatches(ByteBuffer data, List<Batches.Aborted> aborted, long logStart, long highWatermark) {}

    private static final Map<LogSettings, KafkaLogs> OF_PROCESS = new ConcurrentHashMap<>();

    private final Cluster cluster;
    private final Appender appender;
    private final long timeoutMs;
    private final Codec codec;

    /** {@code Logs.of} is the way to one that the process shares. */
    public KafkaLogs(LogSettings settings) {
        this.cluster = new Cluster(settings.servers());
        this.appender = new Appender(cluster);
        this.timeoutMs = settings.timeoutMs();
        this.codec = settings.codec();
    }

    static KafkaLogs shared(LogSettings settings) {
        return OF_PROCESS.computeIfAbsent(settings, KafkaLogs::new);
    }

    private Tries tries(String what) {
        return new Tries(what, timeoutMs);
    }

    // --- topics ------------------------------------------------------------------------------------------------------

    @Override
    public Optional<Topic> topic(String name) throws IOException {
        return cluster.topic(name, tries("a look at topic " + name)).map(Cluster.Known::topic);
    }

    @Override
    public Map<String, String> configs(String topic) throws IOException {
        Tries tries = tries("a look at the settings of topic " + topic);
        try {
            Out request = OffsetMessages.configs(OffsetMessages.TOPIC, topic);
            return cluster.askAny(Api.DESCRIBE_CONFIGS, request, tries, false, OffsetMessages::configsOfTopic);
        } catch (Refusal refusal) {
            throw LogReads.refused(refusal, tries);
        }
    }

    @Override
    public List<String> topics(String prefix) throws IOException {
        return cluster.describe(null, tries("a look at all topics")).stream()
                .map(known -> known.topic().name())
                .filter(name -> name.startsWith(prefix))
                .sorted()
                .toList();
    }

    @Override
    public Topic ensureTopic(String name, int partitions, Map<String, String> configs) throws IOException {
        Tries tries = tries("the creation of topic " + name);
        if (cluster.describe(List.of(name), tries).isEmpty()) {
            create(name, partitions, configs, tries);
        }
        return withLeaders(name, 1, tries);
    }

    @Override
    public Optional<Created> createTopic(String name, int partitions, Map<String, String> configs) throws IOException {
        Tries tries = tries("the creation of topic " + name);
        if (!cluster.describe(List.of(name), tries).isEmpty()) {
            return Optional.empty();
        }
        String id = create(name, partitions, configs, tries);
        if (id == null && tries.areSound()) {
            return Optional.empty();
        }
        Topic topic = withLeaders(name, 1, tries);
        return Optional.of(new Created(topic, topic.id().equals(id)));
    }

    /** The id of the new topic; null where one is there. */
    private String create(String name, int partitions, Map<String, String> configs, Tries tries) throws IOException {
        Out request = Messages.createTopic(name, partitions, configs, waitMs(tries));
        return change(Api.CREATE_TOPICS, request, tries, Code.TOPIC_ALREADY_EXISTS, Messages::createTopic);
    }

    @Override
    public void addPartitions(String name, int partitions) throws IOException {
        Tries tries = tries("the growth of topic " + name);
        Topic topic = cluster.topic(name, tries)
                .orElseThrow(() -> new RefusedException(tries.what() + ": there is no topic " + name))
                .topic();
        if (topic.partitions() < partitions) {
            Out request = Messages.createPartitions(name, partitions, waitMs(tries));
            change(Api.CREATE_PARTITIONS, request, tries, Code.INVALID_PARTITIONS, Messages::createPartitions);
            withLeaders(name, partitions, tries);
        }
    }

    @Override
    public void deleteTopic(String name) throws IOException {
        delete(name, null);
    }

    @Override
    public void deleteTopic(Topic topic) throws IOException {
        delete(topic.name(), topic.id());
    }

    /**
     * {@code id}: of the topic that goes; null for the one that has the name now. Only one topic goes: behind a deletion that may
     * have happened the name may be that of a topic which somebody has made since.
     */
    private void delete(String name, String id) throws IOException {
        Tries looks = tries("the deletion of topic " + name);
        Tries deletions = tries("the deletion of topic " + name);
        String its = id != null ? id : cluster.topic(name, looks).map(known -> known.topic().id()).orElse(null);
        boolean mayStand = its != null;
        boolean mayBeDone = false;
        for (boolean isFirst = true; mayStand; isFirst = false) {
            // A look does not tell that there is nothing to delete: nodes that lag list an older topic of the name, or none.
            boolean wasKnown = deleteById(its, deletions);
            mayBeDone |= wasKnown || !deletions.areSound();
            looks.pause();
            if (id != null || mayBeDone) {
                mayStand = isListed(name, its, looks) || isFirst && !wasKnown;
                continue;
            }
            // The node that named this one may have lagged: the name may be that of a later topic.
            Optional<String> named = cluster.topic(name, looks).map(known -> known.topic().id());
            its = named.orElse(its);
            mayStand = named.isPresent() || isFirst;
        }
        cluster.forget(name);
        appender.forget(name);
    }

    private boolean isListed(String name, String id, Tries tries) throws IOException {
        return cluster.topic(name, tries).filter(known -> known.topic().id().equals(id)).isPresent();
    }

    /** Whether the node that was asked knew the topic. Where it did not, it may lag, and another one is asked next. */
    private boolean deleteById(String id, Tries tries) throws IOException {
        Out request = Messages.deleteTopic(id, waitMs(tries));
        boolean wasKnown = change(Api.DELETE_TOPICS, request, tries, Code.NONE, Messages::deleteTopic);
        if (!wasKnown) {
            cluster.passOn();
        }
        return wasKnown;
    }

    /** How long a node is asked to wait, so that it answers before this client gives the connection up. */
    private static int waitMs(Tries tries) {
        return (int) Math.max(1, tries.attemptMs(0) / 2);
    }

    /** {@code done} is what a node says that finds the change made, by an earlier try or by somebody else: that gives null. */
    private <T> T change(Api api, Out request, Tries tries, Code done, Cluster.Meaning<T> meaning) throws IOException {
        try {
            return cluster.askAny(api, request, tries, true, meaning);
        } catch (Refusal refusal) {
            if (refusal.code() != done) {
                throw new RefusedException(tries.what() + ": " + refusal.getMessage());
            }
            return null;
        }
    }

    private Topic withLeaders(String name, int partitions, Tries tries) throws IOException {
        while (true) {
            Optional<Cluster.Known> known = cluster.topic(name, tries);
            if (known.isPresent() && known.get().hasLeaders(partitions)) {
                return known.get().topic();
            }
            if (tries.isOver()) {
                throw new UnknownOutcomeException(tries.what() + " was accepted; that each of " + partitions
                        + " partitions has a leader is not known yet");
            }
            tries.pause();
        }
    }

    // --- records -----------------------------------------------------------------------------------------------------

    @Override
    public long append(Partition at, List<LogRecord> records) throws IOException {
        if (records.isEmpty()) {
            throw new IllegalArgumentException("an append needs a record");
        }
        byte[] batch = BatchWriter.batch(records, codec, System.currentTimeMillis());
        return appender.append(at, batch, records.size(), tries("an append to " + at));
    }

    @Override
    public Fetched fetch(Partition at, long offset, int maxBytes, int maxWaitMs) throws IOException {
        FetchedBatches got = fetchBatches(at, offset, maxBytes, maxWaitMs);
        List<Numbered> records = new ArrayList<>();
        Batches batches = new Batches(got.data(), got.aborted());
        try {
            while (batches.next()) {
                batches.forEach(record -> {
                    if (record.offset() >= offset) {
                        records.add(record);
                    }
                });
            }
        } catch (IOException damaged) {
            throw new IOException(at + ": " + damaged.getMessage(), damaged);
        }
        return new Fetched(records, Math.max(offset, batches.nextOffset()), got.logStart(), got.highWatermark());
    }

    /** As {@link #fetch}, for those who decode the batches themselves. */
    public FetchedBatches fetchBatches(Partition at, long offset, int maxBytes, int maxWaitMs) throws IOException {
        Tries tries = new Tries("a read of " + at + " from offset " + offset, timeoutMs + maxWaitMs);
        Out request = RecordMessages.fetch(at, offset, maxBytes, maxWaitMs);
        while (true) {
            RecordMessages.FetchAnswer answer =
                    atLeader(at, Api.FETCH, request, tries, maxWaitMs, RecordMessages::fetch);
            if (answer.code() == Code.OFFSET_OUT_OF_RANGE) {
                if (offset < answer.logStart()) {
                    throw new LogStartException(at, offset, answer.logStart());
                }
                throw new RefusedException(tries.what() + ": it lies behind the end, which is " + answer.highWatermark());
            }
            // Each offset before the end belongs to a batch, as compaction leaves batches without records.
            if (answer.records().hasRemaining() || offset >= answer.lastStableOffset()) {
                return new FetchedBatches(answer.records(), answer.aborted(), answer.logStart(), answer.highWatermark());
            }
            tries.note(at.toString(), "the leader has not read it from the remote tier yet");
            if (tries.isOver()) {
                throw tries.unavailable();
            }
            tries.pause();
        }
    }

    // --- offsets -----------------------------------------------------------------------------------------------------

    @Override
    public long earliest(Partition at) throws IOException {
        return atLeader(at, Api.LIST_OFFSETS, Messages.earliest(at), tries("a look at the log start of " + at), 0,
                Messages::earliest);
    }

    @Override
    public long end(Partition at) throws IOException {
        return atLeader(at, Api.READ_OFFSET, Messages.readOffset(at), tries("a look at the end of " + at), 0,
                Messages::readOffset);
    }

    @Override
    public void deleteRecords(Partition at, long beforeOffset) throws IOException {
        if (beforeOffset < 0) {
            throw new RefusedException("a deletion of records of " + at + ": offset " + beforeOffset + " is none");
        }
        Tries tries = tries("a deletion of records of " + at + " below offset " + beforeOffset);
        Out request = Messages.deleteRecords(at, beforeOffset, waitMs(tries));
        atLeader(at, Api.DELETE_RECORDS, request, tries, 0, Messages::deleteRecords);
    }

    private <T> T atLeader(Partition at, Api api, Out request, Tries tries, long waitMs, Cluster.Meaning<T> meaning)
            throws IOException {
        try {
            return cluster.askLeader(at, api, request, tries, waitMs, meaning);
        } catch (Refusal refusal) {
            throw new RefusedException(tries.what() + ": " + refusal.getMessage());
        }
    }

    @Override
    public String toString() {
        return "the quorum at " + cluster;
    }
}
