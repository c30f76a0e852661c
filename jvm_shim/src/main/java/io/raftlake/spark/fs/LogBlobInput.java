package io.raftlake.spark.fs;

import io.raftlake.spark.log.Ahead;
import io.raftlake.spark.log.LogStartException;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.Fetched;
import io.raftlake.spark.log.Logs.Numbered;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.Keys;
import io.raftlake.spark.quorum.RefusedException;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.fs.FSInputStream;

/**
 * Reads a blob of the quorum, from anywhere in it. Holds what the last fetch brought, some MiB, and fetches as much ahead for
 * who goes on from one chunk to the next.
 */
final class LogBlobInput extends FSInputStream {
    /** Of one fetch: several chunks that are read one after the other. */
    private static final int FETCH_BYTES = 4 << 20;

    private final Logs logs;
    private final BlobUri blob;
    private final Partition at;
    private final Map<Integer, byte[]> held = new HashMap<>();
    private long[] index;
    private long position;

    /** The chunk that was read last. */
    private int last;

    /** The chunk behind those that are held. */
    private int behind = -1;

    /** What stands from chunk {@code behind} on; null where nobody asked for it. */
    private Ahead<Fetched> ahead;

    /** FileNotFoundException where the blob's first chunk is not there. */
    LogBlobInput(Logs logs, BlobUri blob) throws IOException {
        this.logs = logs;
        this.blob = blob;
        this.at = new Partition(blob.topic(), blob.partition());
        if (!blob.isContiguous()) {
            index = readIndex();
        }
        chunk(0);
    }

    private long[] readIndex() throws IOException {
        byte[] value = fetch(blob.last(), 1).records().stream()
                .filter(each -> hasKey(each, blob.indexKey()))
                .map(each -> each.record().value())
                .findFirst()
                .orElse(null);
        if (value == null || value.length != Long.BYTES * blob.chunks()) {
            throw new FileNotFoundException("the index of " + blob + " is not there");
        }
        long[] offsets = new long[blob.chunks()];
        ByteBuffer.wrap(value).asLongBuffer().get(offsets);
        return offsets;
    }

    private Fetched fetch(long offset, int maxBytes) throws IOException {
        try {
            return logs.fetch(at, offset, maxBytes, 0);
        } catch (LogStartException | RefusedException gone) {
            FileNotFoundException told = new FileNotFoundException(blob + " is not there: " + gone.getMessage());
            told.initCause(gone);
            throw told;
        }
    }

    private static boolean hasKey(Numbered record, String key) {
        return Arrays.equals(record.record().key(), Keys.utf8(key));
    }

    private byte[] chunk(int number) throws IOException {
        byte[] found = held.get(number);
        if (found == null) {
            hold(number);
            found = held.get(number);
        }
        if (found == null) {
            throw new FileNotFoundException("chunk " + number + " of " + blob + " is not there");
        }
        if (number == last + 1) {
            fetchAhead();
        }
        last = number;
        return found;
    }

    private void fetchAhead() {
        if (ahead == null && behind < blob.chunks()) {
            long next = offset(behind);
            ahead = Ahead.of("a part of " + blob, () -> fetch(next, FETCH_BYTES));
        }
    }

    /** Takes what stands from this chunk on, as far as one fetch reaches. */
    private void hold(int first) throws IOException {
        Fetched fetched = first == behind && ahead != null ? fetchedAhead() : fetch(offset(first), FETCH_BYTES);
        letGo();
        int number = first;
        for (Numbered record : fetched.records()) {
            if (number < blob.chunks() && record.offset() == offset(number)) {
                if (record.record().value() != null && hasKey(record, blob.key(number))) {
                    held.put(number, record.record().value());
                }
                number++;
            }
        }
        behind = number;
    }

    private Fetched fetchedAhead() throws IOException {
        Ahead<Fetched> asked = ahead;
        ahead = null;
        return asked.get();
    }

    private void letGo() {
        held.clear();
        if (ahead != null) {
            ahead.cancel();
            ahead = null;
        }
    }

    private long offset(int number) {
        return index == null ? blob.first() + number : index[number];
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
    }

    @Override
    public int read(byte[] into, int from, int count) throws IOException {
        if (count == 0) {
            return 0;
        }
        int number = (int) (position / blob.chunkBytes());
        if (number >= blob.chunks()) {
            return -1;
        }
        byte[] chunk = chunk(number);
        int start = (int) (position % blob.chunkBytes());
        int some = Math.min(count, chunk.length - start);
        if (some <= 0) {
            return -1;
        }
        System.arraycopy(chunk, start, into, from, some);
        position += some;
        return some;
    }

    @Override
    public void seek(long where) throws IOException {
        if (where < 0) {
            throw new EOFException("a place before the beginning: " + where);
        }
        position = where;
    }

    @Override
    public long getPos() {
        return position;
    }

    @Override
    public boolean seekToNewSource(long where) {
        return false;
    }

    @Override
    public void close() {
        letGo();
    }
}
