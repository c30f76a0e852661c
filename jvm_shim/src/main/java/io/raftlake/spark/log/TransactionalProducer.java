package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.Transactions.Patience;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.RefusedException;
import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Selector;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * One transaction: its first append begins it, and a command of keys ends it (see {@link #producerId}). For one thread, which does
 * all of the work within its calls.
 *
 * <p>Batches of a partition are appended in the order of the calls, several on their way at a time. What an answer got lost of is
 * sent again with its old sequence, and stands in the log once. After an exception the producer is of no use, and its transaction
 * is to be aborted: what comes behind a missing batch is refused by the node.
 *
 * <p>A producer without a transactional id has no transaction: each batch is visible as soon as it is acknowledged.
 */
public final class TransactionalProducer implements Closeable {
    /** So many bytes are on their way, or wait, at a time. */
    private static final int IN_FLIGHT_BYTES_MAX = 16 << 20;

    private static final long REQUEST_MS_DEFAULT = 10_000;
    private static final long SELECT_MS = 50;

    /** What became of the appends to one partition: so many records, within offsets [start, end); -1 where that is unknown. */
    public record Appended(Partition at, long records, long start, long end) {}

    private final Cluster cluster;
    private final String transactionalId;
    private final ProducerId producer;
    private final Codec codec;
    private final Patience patience;
    private final long requestMs;
    private final Selector selector;
    private final Map<Partition, PartitionSends> partitions = new HashMap<>();
    private final Map<InetSocketAddress, Pipe> pipes = new HashMap<>();
    private long inFlightBytes;
    private long sentBytes;
    private long retries;

    TransactionalProducer(Cluster cluster, String transactionalId, ProducerId producer, Codec codec, Patience patience)
            throws IOException {
        this.cluster = cluster;
        this.transactionalId = transactionalId;
        this.producer = producer;
        this.codec = codec;
        this.patience = patience;
        this.requestMs = patience.requestMs() == 0 ? REQUEST_MS_DEFAULT : patience.requestMs();
        this.selector = Selector.open();
    }

    /** With the {@link #epoch} it names the transaction in a command of keys that ends it, once {@link #flush} is done. */
    public long producerId() {
        return producer.id();
    }

    public short epoch() {
        return producer.epoch();
    }

    /** Bytes of batches that were sent, each counted once. */
    public long sentBytes() {
        return sentBytes;
    }

    /** How often something was sent again. */
    public long retries() {
        return retries;
    }

    /** What was acknowledged so far, by topic and partition. */
    public List<Appended> appended() {
        Map<String, Appended> found = new TreeMap<>();
        partitions.values().forEach(sends -> found.put(sends.at().topic() + "\0" + String.format("%010d",
                sends.at().partition()), sends.appended()));
        return List.copyOf(found.values());
    }

    /**
     * Appends the first {@code size} bytes of {@code content}: so many records, encoded as in a batch of format v2. The bytes may
     * be changed after the call. Waits while too much is on its way.
     */
    public void append(Partition at, byte[] content, int size, int records) throws IOException {
        byte[] batch = BatchWriter.unsealed(content, size, records, codec, System.currentTimeMillis());
        PartitionSends sends = partitions.computeIfAbsent(at, PartitionSends::new);
        if (transactionalId == null) {
            BatchWriter.stamp(batch, producer, sends.take(records));
        } else {
            BatchWriter.stampTransactional(batch, producer, sends.take(records));
        }
        sends.add(batch, records, patience.deliveryMs());
        inFlightBytes += batch.length;
        sentBytes += batch.length;
        work(0);
        while (inFlightBytes > IN_FLIGHT_BYTES_MAX) {
            work(SELECT_MS);
        }
    }

    /** How many batches of a partition are not acknowledged yet. */
    public int unacknowledged(Partition at) {
        PartitionSends sends = partitions.get(at);
        return sends == null ? 0 : sends.unacknowledged();
    }

    public boolean isIdle() {
        return inFlightBytes == 0;
    }

    /** Waits, while something is on its way, until there is something to hear, until {@link #wakeup}, or for some ms. */
    public void poll() throws IOException {
        await(SELECT_MS);
        work(0);
    }

    /** Ends a {@link #poll} that waits, or the next one. Any thread may call it. */
    public void wakeup() {
        selector.wakeup();
    }

    /** Waits until all is acknowledged. */
    public void flush() throws IOException {
        while (inFlightBytes > 0) {
            work(SELECT_MS);
        }
    }

    /** Sends what may be sent, and hears what there is to hear; waits for so many ms at most. */
    private void work(long waitMs) throws IOException {
        for (PartitionSends sends : partitions.values()) {
            if (sends.isOverdue()) {
                throw overdue(sends, sends.said());
            }
            while (sends.maySend()) {
                Pipe pipe = pipe(sends);
                if (pipe == null) {
                    break;
                }
                int timeoutMs = (int) Math.max(1, requestMs * 9 / 10);
                PartitionSends.Batch batch = sends.send(pipe);
                pipe.send(Api.PRODUCE, sends, TransactionMessages.produce(transactionalId, sends.at(), batch.bytes(), timeoutMs));
            }
        }
        for (Pipe pipe : List.copyOf(pipes.values())) {
            work(pipe);
        }
        if (waitMs > 0) {
            await(waitMs);
        }
    }

    private void await(long waitMs) throws IOException {
        if (inFlightBytes > 0) {
            selector.select(waitMs);
            selector.selectedKeys().clear();
            if (Thread.currentThread().isInterrupted()) {
                throw new InterruptedIOException("interrupted in appends" + of());
            }
        }
    }

    private void work(Pipe pipe) throws IOException {
        try {
            pipe.work(this::answered);
            if (pipe.silentNs() > requestMs * 1_000_000) {
                throw new IOException("no answer within " + requestMs + " ms");
            }
        } catch (RefusedException | QuorumUnavailableException | InterruptedIOException ending) {
            throw ending;
        } catch (IOException broken) {
            sendAgain(pipe, Connection.reason(broken));
        }
    }

    /** The connection to the partition's leader; null where there is none now. */
    private Pipe pipe(PartitionSends sends) throws IOException {
        if (sends.pipe() != null) {
            return sends.pipe();
        }
        Tries tries = sends.tries();
        InetSocketAddress leader = cluster.leader(sends.at(), tries);
        if (leader == null) {
            hold(sends, sends.at().toString(), "no leader is known");
            return null;
        }
        try {
            Pipe open = pipes.get(leader);
            if (open == null) {
                open = cluster.pipe(leader, selector);
                pipes.put(leader, open);
            }
            return open;
        } catch (IOException unreachable) {
            hold(sends, leader.toString(), Connection.reason(unreachable));
            return null;
        }
    }

    private String of() {
        return transactionalId == null ? "" : " of " + transactionalId;
    }

    private void hold(PartitionSends sends, String who, String told) {
        retries++;
        sends.hold(who, told);
        cluster.forget(sends.at().topic());
    }

    private void answered(Object request, ByteBuffer answer) throws IOException {
        PartitionSends sends = (PartitionSends) request;
        PartitionSends.Batch batch = sends.oldest();
        long offset;
        try {
            offset = RecordMessages.produce(answer);
        } catch (Refusal refusal) {
            if (refusal.code() != Code.DUPLICATE_SEQUENCE_NUMBER) {
                throw meaning(sends, refusal);
            }
            offset = -1;
        }
        sends.acknowledge(offset);
        inFlightBytes -= batch.bytes().length;
    }

    /** A passing one ends the connection: what is on it is sent again, in its order. */
    private IOException meaning(PartitionSends sends, Refusal refusal) {
        String told = "an append to " + sends.at() + ": " + refusal.getMessage();
        if (transactionalId == null) {
            return refusal.code().passes() ? new Lost(told, true, refusal) : new RefusedException(told);
        }
        return switch (refusal.code()) {
            case INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING ->
                new RefusedException(told + ": the transaction of '" + transactionalId + "' was ended before. Its time limit is "
                        + "'kafka.transaction.timeout.ms'");
            default -> refusal.code().passes() ? new Lost(told, true, refusal) : new RefusedException(told);
        };
    }

    private void sendAgain(Pipe pipe, String told) {
        pipe.close();
        pipes.remove(pipe.address());
        for (PartitionSends sends : partitions.values()) {
            if (sends.pipe() == pipe) {
                hold(sends, pipe.address().toString(), told);
            }
        }
    }

    private QuorumUnavailableException overdue(PartitionSends sends, String said) {
        return new QuorumUnavailableException("an append to " + sends.at() + " was not acknowledged within "
                + patience.deliveryMs() + " ms (kafka.delivery.timeout.ms): " + said);
    }

    @Override
    public void close() throws IOException {
        selector.close();
        pipes.values().forEach(cluster::leave);
        pipes.clear();
    }
}
