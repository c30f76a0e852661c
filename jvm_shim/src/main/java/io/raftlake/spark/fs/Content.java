package io.raftlake.spark.fs;

import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;

/**
 * Reads a file, chunk by chunk, from anywhere in it. A chunk is checked before a byte of it is handed out; an inline file was
 * checked when its key was read, and is one chunk.
 */
final class Content extends FSInputStream {
    /** Where chunks come from. */
    interface Chunks {
        /** The chunk with this number, checked. */
        byte[] read(int number) throws IOException;

        void close() throws IOException;
    }

    private final Location at;
    private final long length;
    private final int chunkBytes;
    private final FileSystem.Statistics statistics;
    private Chunks chunks;
    private int number = -1;
    private byte[] chunk;
    private long position;

    Content(Location at, long length, int chunkBytes, Chunks chunks, FileSystem.Statistics statistics) {
        this.at = at;
        this.length = length;
        this.chunkBytes = chunkBytes;
        this.chunks = chunks;
        this.statistics = statistics;
    }

    /** The content that a key holds. */
    static Content inline(Location at, byte[] content, FileSystem.Statistics statistics) {
        Chunks whole = new Chunks() {
            @Override
            public byte[] read(int number) {
                return content;
            }

            @Override
            public void close() {}
        };
        return new Content(at, content.length, Math.max(1, content.length), whole, statistics);
    }

    @Override
    public synchronized int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
    }

    @Override
    public synchronized int read(byte[] into, int from, int count) throws IOException {
        requireOpen();
        java.util.Objects.checkFromIndexSize(from, count, into.length);
        int got = copy(position, into, from, count);
        position += Math.max(0, got);
        return got;
    }

    @Override
    public synchronized int read(long where, byte[] into, int from, int count) throws IOException {
        requireOpen();
        validatePositionedReadArgs(where, into, from, count);
        return copy(where, into, from, count);
    }

    /** Some of the bytes at {@code where}: up to the end of one chunk. */
    private int copy(long where, byte[] into, int from, int count) throws IOException {
        if (count == 0) {
            return 0;
        }
        if (where >= length) {
            return -1;
        }
        hold(where);
        int at = (int) (where % chunkBytes);
        int some = Math.min(count, chunk.length - at);
        System.arraycopy(chunk, at, into, from, some);
        statistics.incrementBytesRead(some);
        return some;
    }

    private void hold(long where) throws IOException {
        int wanted = (int) (where / chunkBytes);
        if (wanted != number) {
            chunk = chunks.read(wanted);
            number = wanted;
        }
    }

    /** Chunk by chunk, as they are. */
    @Override
    public synchronized long transferTo(OutputStream out) throws IOException {
        requireOpen();
        long first = position;
        while (position < length) {
            hold(position);
            int at = (int) (position % chunkBytes);
            int some = chunk.length - at;
            out.write(chunk, at, some);
            statistics.incrementBytesRead(some);
            position += some;
        }
        return position - first;
    }

    /** Into one array of the right size. */
    @Override
    public synchronized byte[] readAllBytes() throws IOException {
        requireOpen();
        byte[] all = new byte[Math.toIntExact(length - position)];
        readFully(position, all);
        position = length;
        return all;
    }

    @Override
    public synchronized void seek(long where) throws IOException {
        requireOpen();
        if (where < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + ": " + where + " in " + at);
        }
        if (where > length) {
            throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF + ": " + where + " in " + at + " of " + length);
        }
        position = where;
    }

    @Override
    public synchronized long getPos() {
        return position;
    }

    @Override
    public synchronized long skip(long count) throws IOException {
        requireOpen();
        long some = Math.max(0, Math.min(count, length - position));
        position += some;
        return some;
    }

    @Override
    public synchronized int available() throws IOException {
        requireOpen();
        return (int) Math.min(Integer.MAX_VALUE, length - position);
    }

    @Override
    public boolean seekToNewSource(long where) {
        return false;
    }

    private void requireOpen() throws IOException {
        if (chunks == null) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED + ": " + at);
        }
    }

    @Override
    public synchronized void close() throws IOException {
        if (chunks != null) {
            Chunks open = chunks;
            chunks = null;
            chunk = null;
            open.close();
        }
    }
}
