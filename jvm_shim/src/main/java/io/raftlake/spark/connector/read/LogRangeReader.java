package io.raftlake.spark.connector.read;

import io.raftlake.spark.log.Batches;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.log.OffsetRangeException;
import io.raftlake.spark.log.RangeFetches;
import io.raftlake.spark.log.RangeFetches.Got;
import io.raftlake.spark.log.UnknownTopicException;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executor: one range of the log as batches of columns. The next piece is fetched while the last one is used. The invariant: a
 * range is read whole, or the task fails; only with {@code failOnDataLoss} false may its beginning be missing. Another node is
 * asked before a task fails.
 *
 * <p>An open range is read for as long as somebody asks. There the leader's word that nothing is new is no failure, and a log that
 * is gone, with {@code failOnDataLoss} false, has no more rows: the driver finds out what became of it.
 */
final class LogRangeReader implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(LogRangeReader.class);
    private static final long NS_PER_MS = 1_000_000;

    private final PlannedRange task;
    private final OffsetRange range;
    private final LogReads client;
    private final RecordBlock block;
    private final Prefetch fetches;

    /** Nodes that sent damage, and nodes in whose place others sent it. */
    private final Set<Integer> left = new HashSet<>();
    private final ReadMetrics metrics;
    private long rowsLeft;

    private RecordDecoder decoder;
    private Got got;

    /** Who was asked for that. */
    private int askedNode;
    private long position;
    private boolean isOver;
    private long progressedAtNs = System.nanoTime();

    /** From an offset of the task's range on. */
    LogRangeReader(PlannedRange task, long start, StructType columns, long rowsMax, ReadMetrics metrics) {
        this.task = task;
        this.range = task.range().within(start, task.range().end());
        this.metrics = metrics;
        this.client = RaftlakeScanBuilder.client(task.quorum());
        this.block = new RecordBlock(columns, range.at());
        this.rowsLeft = rowsMax;
        this.position = range.start();
        Partition at = new Partition(range.at().topic(), range.at().partition());
        RangeFetches bytes = task.topicId() == null
                ? null : new RangeFetches(client, at, task.topicId(), task.readsCommitted());
        this.fetches = new Prefetch(bytes, range.end(), rowsMax, task.nodeId());
    }

    /** Goes to the next rows; false where the range has no more. */
    boolean next() throws IOException {
        return next(Long.MAX_VALUE);
    }

    /** Goes to the next rows; false where the range has no more, and where none came within so many ns. */
    boolean next(long timeoutNs) throws IOException {
        long begunAtNs = System.nanoTime();
        while (rowsLeft > 0) {
            if (decoder != null && fill()) {
                rowsLeft -= block.rows();
                return true;
            }
            long leftNs = timeoutNs - (System.nanoTime() - begunAtNs);
            if (isOver || position >= range.end() || leftNs <= 0) {
                return false;
            }
            fetch(leftNs);
        }
        return false;
    }

    ColumnarBatch batch() {
        return block.batch();
    }

    /** Of a row of the batch. */
    long offset(int row) {
        return block.offset(row);
    }

    /** Of a row of the batch, in ms since 1970. */
    long timeMs(int row) {
        return block.timeMs(row);
    }

    /** The offset behind the rows of the batch, and behind what holds none. */
    long position() {
        return position;
    }

    @Override
    public void close() {
        fetches.close();
    }

    /** False where the fetch has no more rows, or is damaged; position is where to go on. */
    private boolean fill() throws IOException {
        long before = position;
        boolean isFilled = false;
        try {
            isFilled = decoder.fill();
        } catch (IOException damage) {
            leaveDamaged(damage);
            decoder = null;
            return false;
        }
        position = Math.max(position, decoder.next());
        if (position > before) {
            progressedAtNs = System.nanoTime();
        }
        if (!isFilled) {
            decoder = null;
        }
        return isFilled;
    }

    /** The next piece, and the one behind it is asked for. */
    private void fetch(long timeoutNs) throws IOException {
        if (task.topicId() == null) {
            lose(range.end(), new UnknownTopicException("the topic of " + range.at() + " is gone"));
            return;
        }
        long began = System.nanoTime();
        int asked = fetches.node();
        try {
            Got taken = fetches.take(position, timeoutNs);
            if (taken == null) {
                return;
            }
            got = taken;
            askedNode = asked;
            metrics.fetched(got.data().remaining(), System.nanoTime() - began);
            long behind = Math.min(range.end(), Batches.endOffset(got.data(), range.end()));
            if (Batches.firstOffset(got.data()) >= range.end()) {
                // Compaction left nothing of the range.
                position = range.end();
                return;
            }
            if (behind <= position) {
                withoutNews();
                return;
            }
            fetches.learn(got.data().remaining(), behind - position);
            decoder = new RecordDecoder(got, position, range.end(), block);
            if (behind < range.end() && behind - position < rowsLeft) {
                fetches.ask(behind);
            }
        } catch (QuorumUnavailableException outage) {
            metrics.retried();
            requirePatience(outage);
        } catch (OffsetRangeException outside) {
            metrics.retried();
            refuse(outside);
        } catch (UnknownTopicException gone) {
            lose(range.end(), gone);
        }
    }

    /** A bounded range was there as it was planned: a log that is proven to end before has lost the rest of it. */
    private void withoutNews() throws IOException {
        if (range.isOpen()) {
            progressedAtNs = System.nanoTime();
        } else if (isProvenThere()) {
            requirePatience(null);
        } else {
            lose(range.end(), new IOException("the log ends at or before " + position));
        }
    }

    /** What a leader says that it does not hold is lost, unless the log is proven to reach beyond. */
    private void refuse(OffsetRangeException outside) throws IOException {
        if (outside.logStart() > position) {
            lose(Math.min(range.end(), outside.logStart()), outside);
        } else if (isProvenThere()) {
            // Of a leader that was replaced, cut off from the others, and does not know it yet.
            requirePatience(null);
        } else {
            lose(range.end(), outside);
        }
    }

    /** While nobody can say, it may be. */
    private boolean isProvenThere() throws IOException {
        int number = range.at().partition();
        try {
            long proven = client.readOffset(range.at().topic(), null, List.of(number)).get(number);
            return proven > position || range.isOpen() && proven == position;
        } catch (UnknownTopicException gone) {
            return false;
        } catch (QuorumUnavailableException outage) {
            return true;
        }
    }

    private void lose(long resume, Exception cause) {
        DataLoss.report("Cannot fetch records " + (resume == OffsetRange.OPEN ? "of " : "in ") + range.within(position, resume) + " (" + cause.getMessage() + ")",
                task.failOnDataLoss());
        if (resume == OffsetRange.OPEN) {
            isOver = true;
        } else {
            position = resume;
        }
    }

    /**
     * A node that sends damaged batches has a bad disk; the other replicas hold the same offsets. A node that was asked and did
     * not answer is left too: the next answer in its place would be as damaged.
     */
    private void leaveDamaged(IOException damage) throws IOException {
        left.addAll(List.of(got.nodeId(), askedNode));
        List<Integer> sound = task.replicas().stream().filter(node -> !left.contains(node)).toList();
        if (sound.isEmpty()) {
            throw new IOException(range + ": " + damage.getMessage(), damage);
        }
        LOG.warn("{}: node {} sent damage ({}); reading from node {}", range, got.nodeId(), damage.getMessage(), sound.get(0));
        metrics.retried();
        fetches.use(sound.get(0));
    }

    /** Another try, at the leader, unless there was no progress for as long as the query may wait. */
    private void requirePatience(IOException cause) throws IOException {
        fetches.use(RangeFetches.LEADER);
        long stalledMs = (System.nanoTime() - progressedAtNs) / NS_PER_MS;
        if (stalledMs > task.quorum().patience().totalMs()) {
            String told = range + ": no node had offset " + position + " for " + stalledMs + " ms";
            throw new IOException(cause == null ? told : told + ": " + cause.getMessage(), cause);
        }
    }
}
