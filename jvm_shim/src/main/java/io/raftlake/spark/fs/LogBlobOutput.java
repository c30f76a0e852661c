package io.raftlake.spark.fs;

import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.Keys;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Writes a blob of the quorum, chunk by chunk. One chunk is on its way while the next one fills, so memory holds two, and the
 * chunks of one writer stand in their order.
 */
final class LogBlobOutput extends BlobStore.Output {
    /** An announcement is renewed with so many times the chunks. */
    private static final int GROWTH = 4;

    private static final ExecutorService SENDERS = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "raftlake-blob-writer");
        thread.setDaemon(true);
        return thread;
    });

    private final Logs logs;
    private final Partition at;
    private final BlobStore.Announcement announcement;
    private final List<Long> offsets = new ArrayList<>();
    private BlobUri uri;
    private byte[] chunk;
    private int filled;
    private int chunks;
    private Future<Long> underWay;
    private boolean isUnsure;
    private boolean isClosed;

    LogBlobOutput(Logs logs, BlobUri uri, BlobStore.Announcement announcement) {
        this.logs = logs;
        this.uri = uri;
        this.at = new Partition(uri.topic(), uri.partition());
        this.announcement = announcement;
        this.chunk = new byte[uri.chunkBytes()];
    }

    @Override
    public void write(int b) throws IOException {
        write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int from, int count) throws IOException {
        while (count > 0) {
            int some = Math.min(count, chunk.length - filled);
            System.arraycopy(bytes, from, chunk, filled, some);
            filled += some;
            from += some;
            count -= some;
            if (filled == chunk.length) {
                send();
            }
        }
    }

    private void send() throws IOException {
        awaitChunk();
        if (chunks == uri.chunks()) {
            BlobUri more = uri.upTo(GROWTH * uri.chunks());
            announcement.renew(more.toString());
            uri = more;
        }
        byte[] value = filled == chunk.length ? chunk : Arrays.copyOf(chunk, filled);
        List<LogRecord> batch = List.of(LogRecord.of(Keys.utf8(uri.key(chunks)), value));
        underWay = SENDERS.submit(() -> logs.append(at, batch));
        chunks++;
        chunk = new byte[uri.chunkBytes()];
        filled = 0;
    }

    private void awaitChunk() throws IOException {
        if (underWay == null) {
            return;
        }
        try {
            offsets.add(underWay.get());
            underWay = null;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while a chunk of " + uri + " was written");
        } catch (ExecutionException failed) {
            underWay = null;
            isUnsure |= failed.getCause() instanceof UnknownOutcomeException;
            throw failed.getCause() instanceof IOException told ? told : new IOException(failed.getCause());
        }
    }

    @Override
    public void close() throws IOException {
        if (isClosed) {
            return;
        }
        if (filled > 0 || chunks == 0) {
            send();
        }
        awaitChunk();
        isClosed = true;
        chunk = null;
        BlobUri written = uri.written(offsets.get(0), offsets.get(chunks - 1), chunks);
        uri = written.isContiguous() ? written : uri.written(offsets.get(0), putIndex(), chunks);
    }

    /** Others wrote between the chunks: where each is, is told by a record behind them. */
    private long putIndex() throws IOException {
        ByteBuffer index = ByteBuffer.allocate(Long.BYTES * chunks);
        offsets.forEach(index::putLong);
        try {
            return logs.append(at, List.of(LogRecord.of(Keys.utf8(uri.indexKey()), index.array())));
        } catch (UnknownOutcomeException unknown) {
            isUnsure = true;
            throw unknown;
        }
    }

    @Override
    String uri() {
        return uri.toString();
    }

    @Override
    boolean abort() {
        isClosed = true;
        chunk = null;
        try {
            awaitChunk();
        } catch (InterruptedIOException interrupted) {
            return false;
        } catch (IOException failed) {
            // What became of the chunk is known, or noted.
        }
        return !isUnsure;
    }
}
