package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.TransactionalProducer.Appended;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;

/**
 * The batches of one producer on one partition, from their append to their acknowledgement, in one order. All that is on its way
 * is on one connection; when that ends, all of it waits again.
 */
final class PartitionSends {
    /** A node remembers as many batches of a producer, and knows each of them again. */
    private static final int IN_FLIGHT_MAX = 5;

    private static final int SEQUENCE_MASK = Integer.MAX_VALUE;
    private static final long HOLD_MS_FIRST = 20;
    private static final long HOLD_MS_MAX = 200;
    private static final String DELIVERY = "kafka.delivery.timeout.ms";

    /** A batch with its producer in it. */
    record Batch(byte[] bytes, int records, Tries tries) {}

    private final Partition at;
    private final Deque<Batch> inFlight = new ArrayDeque<>();
    private final Deque<Batch> waiting = new ArrayDeque<>();
    private int sequence;
    private Pipe pipe;
    private long heldUntilNs;
    private long holdMs = HOLD_MS_FIRST;
    private boolean isHeld;
    private long records;
    private long start = -1;
    private long end = -1;

    PartitionSends(Partition at) {
        this.at = at;
    }

    Partition at() {
        return at;
    }

    /** The sequence of the next batch, which has so many records. */
    int take(int count) {
        int taken = sequence;
        sequence = sequence + count & SEQUENCE_MASK;
        return taken;
    }

    void add(byte[] batch, int count, long deliveryMs) {
        waiting.add(new Batch(batch, count, new Tries("an append to " + at, deliveryMs, Tries.ATTEMPT_MS, DELIVERY)));
    }

    int unacknowledged() {
        return inFlight.size() + waiting.size();
    }

    /** The connection with something of this partition on its way, or null. */
    Pipe pipe() {
        return pipe;
    }

    boolean maySend() {
        if (isHeld && System.nanoTime() - heldUntilNs < 0) {
            return false;
        }
        return !waiting.isEmpty() && inFlight.size() < IN_FLIGHT_MAX;
    }

    /** The batch that goes out next, on this connection. */
    Batch send(Pipe on) {
        isHeld = false;
        pipe = on;
        Batch batch = waiting.removeFirst();
        inFlight.addLast(batch);
        return batch;
    }

    /** The first one that is not acknowledged, of those on their way. */
    Batch oldest() {
        return inFlight.getFirst();
    }

    /** Of the oldest batch: its offset, or -1 where the node knows it, and no longer where it stands. */
    void acknowledge(long offset) {
        Batch batch = inFlight.removeFirst();
        holdMs = HOLD_MS_FIRST;
        records += batch.records();
        if (offset >= 0) {
            start = start < 0 ? offset : start;
            end = offset + batch.records();
        }
        if (inFlight.isEmpty()) {
            pipe = null;
        }
    }

    /** All that was on its way waits again, and nothing is sent for a moment, because of what this node said. */
    void hold(String who, String told) {
        while (!inFlight.isEmpty()) {
            waiting.addFirst(inFlight.removeLast());
        }
        pipe = null;
        waiting.getFirst().tries().note(who, told);
        heldUntilNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(holdMs);
        holdMs = Math.min(2 * holdMs, HOLD_MS_MAX);
        isHeld = true;
    }

    private Batch first() {
        return inFlight.isEmpty() ? waiting.peekFirst() : inFlight.peekFirst();
    }

    /** Of the batch that goes out next. */
    Tries tries() {
        return waiting.getFirst().tries();
    }

    boolean isOverdue() {
        Batch first = first();
        return first != null && first.tries().isOver();
    }

    /** What nodes said of the first batch. */
    String said() {
        return first().tries().said();
    }

    Appended appended() {
        return new Appended(at, records, start, end);
    }
}
