package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.Optional;
import java.util.SortedMap;
import java.util.UUID;
import java.util.function.LongSupplier;

/**
 * Writes the position of a source so that an older driver does not write over a newer one's. {@code position_writer.py} does
 * the same, and tells the rules. The key belongs to the run that took it last. A run that finds a generation that is not below
 * its own was replaced. It writes again only where the other one has fallen silent while this one goes on.
 */
final class PositionWriter {
    /** A run that was replaced takes the key again once nobody has written it for so long, by its own clock. */
    static final long SILENT_MS = 180_000;

    /** Sources of one query that read the same and have keys. */
    private static final int EQUALS_MAX = 8;

    private static final int LOOKS_MAX = 10;

    /** The key, at the version that this source has put. */
    private record Held(String key, long version, long generation) {}

    /** Another run owns the key: at which version, seen first at which time, and where this one was then. */
    private record Replaced(String key, long version, long sinceMs, SortedMap<TopicPartition, Long> offsets) {}

    private final KeySpace keys;
    private final QueryPosition.Source source;
    private final LongSupplier nowMs;
    private final String writer = UUID.randomUUID().toString().replace("-", "");
    private Held held;
    private Replaced replaced;

    /** {@code nowMs}: of a clock that only goes forward. */
    PositionWriter(KeySpace keys, QueryPosition.Source source, LongSupplier nowMs) {
        this.keys = keys;
        this.source = source;
        this.nowMs = nowMs;
    }

    /** False where another run owns the key. */
    boolean write(SortedMap<TopicPartition, Long> offsets, long batchMs, long seenMs) throws IOException {
        if (replaced != null && !mayReturn(offsets)) {
            return false;
        }
        QueryPosition position = new QueryPosition(offsets, batchMs, seenMs, source, writer, 1);
        if (held != null && put(held.key(), held.version(), position.withGeneration(held.generation()))) {
            return true;
        }
        return take(position);
    }

    /** The key as it stands decides: a conflict, a command whose outcome is not known, or the first write. */
    private boolean take(QueryPosition position) throws IOException {
        int number = 0;
        for (int look = 0; look < LOOKS_MAX + EQUALS_MAX; look++) {
            String key = held == null ? source.key(number) : held.key();
            Optional<Entry> entry = keys.get(key);
            QueryPosition found = entry.map(each -> QueryPosition.decode(each.value())).orElse(null);
            long version = entry.map(Entry::version).orElse(KeySpace.ABSENT);
            long generation = held == null ? 1 : held.generation();
            if (found != null && found.writer().equals(writer)) {
                generation = found.generation();
            } else if (found != null && held == null) {
                if (found.source().run().equals(source.run()) && number + 1 < EQUALS_MAX) {
                    // Another source of this run, which reads the same.
                    number++;
                    continue;
                }
                generation = found.generation() + 1;
            } else if (found != null && found.generation() >= generation) {
                held = null;
                replaced = new Replaced(key, version, nowMs.getAsLong(), position.offsets());
                return false;
            }
            if (found != null && found.batchMs() > 0 && found.offsets().equals(position.offsets())) {
                // A run that has read nothing yet had no batch.
                position = position.withBatchMs(found.batchMs());
            }
            if (put(key, version, position.withGeneration(generation))) {
                return true;
            }
        }
        throw new RefusedException(source.key(0) + " was written by others again and again");
    }

    private boolean put(String key, long version, QueryPosition position) throws IOException {
        byte[] value = position.encode();
        TxnResult result = keys.commit(new Txn().compare(key, version).put(key, value), Witness.put(key, value));
        if (!result.succeeded()) {
            return false;
        }
        // Where only the effect was read back, the version is not known: the next write looks.
        held = new Held(key, result.version(), position.generation());
        return true;
    }

    private boolean mayReturn(SortedMap<TopicPartition, Long> offsets) throws IOException {
        long version = keys.get(replaced.key()).map(Entry::version).orElse(KeySpace.ABSENT);
        if (version != replaced.version()) {
            replaced = new Replaced(replaced.key(), version, nowMs.getAsLong(), offsets);
        }
        if (replaced.offsets().equals(offsets) || nowMs.getAsLong() - replaced.sinceMs() < SILENT_MS) {
            return false;
        }
        replaced = null;
        return true;
    }
}
