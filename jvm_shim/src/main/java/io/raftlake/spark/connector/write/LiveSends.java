package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.TransactionalProducer;
import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Sends rows as they come, in a thread of its own: the task's thread waits for rows meanwhile. Rows of a partition that come while
 * its batches are on their way are the next batch; so batches grow with the load, and no row waits for a timer.
 *
 * <p>Bounded: a partition whose batch is full makes the task wait. After an error every call throws it.
 */
final class LiveSends implements Closeable {
    /** Of encoded records before they are compressed. */
    static final int BATCH_BYTES_MAX = 512 << 10;

    /** Batches of a partition on their way. More would be smaller ones, and more work for the nodes, which then answer later. */
    private static final int UNACKNOWLEDGED_MAX = 1;

    private record Ready(Partition at, RecordBuffer buffer) {}

    private final TransactionalProducer producer;
    private final Thread thread;

    /** What waits. This, and all below, is for whoever holds the lock. */
    private final Map<Partition, RecordBuffer> gathered = new LinkedHashMap<>();

    private boolean isSending;
    private boolean isClosed;
    private Exception failure;
    private long sentBytes;
    private long retries;

    /** The producer is this object's from now on. */
    LiveSends(TransactionalProducer producer) {
        this.producer = producer;
        this.thread = new Thread(this::run, "raftlake-send");
        thread.setDaemon(true);
        thread.start();
    }

    // --- the task's thread -------------------------------------------------------------------------------------------

    /** Takes the row, which is sent without further calls. */
    synchronized void add(RoutedRow row) throws IOException {
        Partition at = new Partition(row.rows().topic(), row.partition());
        requireSound();
        RecordBuffer buffer = gathered.get(at);
        while (buffer != null && buffer.size() + row.bytes() > BATCH_BYTES_MAX) {
            await();
            buffer = gathered.get(at);
        }
        if (buffer == null) {
            buffer = new RecordBuffer();
            gathered.put(at, buffer);
            notifyAll();
            producer.wakeup();
        }
        row.addTo(buffer);
    }

    /** Waits until all rows are acknowledged. */
    synchronized void flush() throws IOException {
        requireSound();
        while (!gathered.isEmpty() || isSending) {
            await();
        }
    }

    private void await() throws IOException {
        try {
            wait();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while it waited for the acknowledgement of rows");
        }
        requireSound();
    }

    private void requireSound() throws IOException {
        if (failure instanceof RuntimeException unchecked) {
            throw unchecked;
        }
        if (failure != null) {
            throw (IOException) failure;
        }
    }

    synchronized long sentBytes() {
        return sentBytes;
    }

    synchronized long retries() {
        return retries;
    }

    /** What is not sent yet stays unsent. */
    @Override
    public void close() {
        synchronized (this) {
            isClosed = true;
            notifyAll();
        }
        thread.interrupt();
    }

    /** As {@link #close}, and waits until nothing more is sent. False where that took longer, or the wait was interrupted. */
    boolean closeAndAwait(long limitMs) {
        close();
        try {
            thread.join(limitMs);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        return !thread.isAlive();
    }

    // --- the thread that sends ---------------------------------------------------------------------------------------

    private void run() {
        try (producer) {
            while (awaitWork()) {
                List<Ready> ready = take();
                for (Ready each : ready) {
                    producer.append(each.at(), each.buffer().array(), each.buffer().size(), each.buffer().count());
                }
                if (ready.isEmpty()) {
                    producer.poll();
                }
                tell();
            }
        } catch (IOException | RuntimeException error) {
            fail(error);
        } catch (Throwable error) {
            // As where a codec's library cannot be loaded. Without this the task would wait for ever.
            fail(new IOException("the thread that sends rows has ended: " + error, error));
        }
    }

    private synchronized void fail(Exception error) {
        failure = error;
        notifyAll();
    }

    /** False where it is closed. */
    private synchronized boolean awaitWork() throws IOException {
        while (gathered.isEmpty() && !isSending && !isClosed) {
            await();
        }
        return !isClosed;
    }

    private synchronized List<Ready> take() {
        List<Ready> ready = new ArrayList<>();
        gathered.forEach((at, buffer) -> {
            if (producer.unacknowledged(at) < UNACKNOWLEDGED_MAX) {
                ready.add(new Ready(at, buffer));
            }
        });
        ready.forEach(each -> gathered.remove(each.at()));
        isSending = true;
        notifyAll();
        return ready;
    }

    private synchronized void tell() {
        isSending = !producer.isIdle();
        sentBytes = producer.sentBytes();
        retries = producer.retries();
        notifyAll();
    }
}
