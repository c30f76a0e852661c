package io.raftlake.spark.log;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The logs of a quorum: topics, and records at offsets of their partitions. Thread-safe.
 *
 * <p>Guarantees of an implementation:
 *
 * <ol>
 *   <li>An append is atomic, and acknowledged by a majority when the call returns. The implementation sends it again where the
 *       answer was lost, and it stands in the log once.</li>
 *   <li>{@link #end} is linearizable: every append that was acknowledged before the call began lies below it.</li>
 *   <li>A read shows committed records only, in the order of their offsets. Offsets may have gaps.</li>
 *   <li>Every call ends within the deadline that the implementation was made with, and within {@code maxWaitMs} beside it for
 *       {@link #fetch}.</li>
 * </ol>
 *
 * <p>Errors are {@link IOException}s that name the topic and the partition: {@link
 * io.raftlake.spark.quorum.QuorumUnavailableException} where nothing was changed in time, {@link
 * io.raftlake.spark.quorum.RefusedException} where trying again does not help (there is no such topic or partition, a batch is
 * too large), {@link io.raftlake.spark.quorum.UnknownOutcomeException} where a change may or may not have happened, and {@link
 * java.io.InterruptedIOException} where the calling thread was interrupted.
 */
public interface Logs {
    /** A topic; {@code id} is Kafka's base64 form of its uuid, and another one for a name that was deleted and made again. */
    record Topic(String name, String id, int partitions) {}

    /** A topic that is there after a creation. {@code isOurs}: that this call has made it is certain. */
    record Created(Topic topic, boolean isOurs) {}

    /** A partition of a topic, counted from 0. */
    record Partition(String topic, int partition) {
        @Override
        public String toString() {
            return topic + "-" + partition;
        }
    }

    /** One record. Key and value may be null; headers may be empty. */
    record LogRecord(byte[] key, byte[] value, List<Header> headers) {
        /** A record without headers. */
        public static LogRecord of(byte[] key, byte[] value) {
            return new LogRecord(key, value, List.of());
        }
    }

    /** A header of a record; the value may be null. */
    record Header(String key, byte[] value) {}

    /** A record with its offset, and its time in ms since 1970. */
    record Numbered(long offset, long timestampMs, LogRecord record) {}

    /**
     * What a read got: records, offsets ascending; the offset to go on from, which may lie behind a gap; and the bounds that
     * the answer named. No records and {@code nextOffset} as asked: there was nothing in time.
     */
    record Fetched(List<Numbered> records, long nextOffset, long logStart, long highWatermark) {}

    /** The logs of the quorum that the settings name: one client for all of the process that have the same settings. */
    static Logs of(LogSettings settings) {
        return KafkaLogs.shared(settings);
    }

    /** The topic, or nothing where there is none. */
    Optional<Topic> topic(String name) throws IOException;

    /** The configs that were set for a topic, by name. */
    Map<String, String> configs(String topic) throws IOException;

    /**
     * The topic, created where there is none. It has leaders then. One that is there is returned as it is: partitions and
     * configs are not compared.
     */
    Topic ensureTopic(String name, int partitions, Map<String, String> configs) throws IOException;

    /**
     * Creates a topic, which has leaders then; nothing where another one has the name. After a lost answer nobody can tell who
     * made the topic that is there: it is returned, and is not ours.
     */
    Optional<Created> createTopic(String name, int partitions, Map<String, String> configs) throws IOException;

    /** Brings the topic to so many partitions; nothing happens where it has as many, or more. */
    void addPartitions(String name, int partitions) throws IOException;

    /** Deletes a topic. Where there is none, nothing happens. */
    void deleteTopic(String name) throws IOException;

    /** Deletes this topic. Another one of the same name stays. */
    void deleteTopic(Topic topic) throws IOException;

    /** The names that begin with {@code prefix}, in order. */
    List<String> topics(String prefix) throws IOException;

    /** Appends the records, one at least, as one atomic batch of at most the topic's max.message.bytes; the first offset. */
    long append(Partition at, List<LogRecord> records) throws IOException;

    /**
     * Records from {@code offset} on: one at least where there is one, and about {@code maxBytes} at most. Waits at most {@code
     * maxWaitMs} for a first one. {@link LogStartException} below the log start; a RefusedException behind the end.
     */
    Fetched fetch(Partition at, long offset, int maxBytes, int maxWaitMs) throws IOException;

    /** The log start: records below it were deleted. */
    long earliest(Partition at) throws IOException;

    /** The offset behind all that was acknowledged before the call. */
    long end(Partition at) throws IOException;

    /** Deletes the records below an offset, which is at most the end. Nothing happens where the log starts behind it. */
    void deleteRecords(Partition at, long beforeOffset) throws IOException;
}
