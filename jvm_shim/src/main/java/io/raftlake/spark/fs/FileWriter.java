package io.raftlake.spark.fs;

import io.raftlake.spark.log.Bootstrap;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.zip.CRC32C;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.StreamCapabilities;

/**
 * A file under way. Nothing is seen of it before {@link #close} returns; then all of it is. A stream that is aborted, or whose
 * write failed, leaves nothing.
 *
 * <p>Content above the bound for inline files goes to a blob while it comes. Without a place for blobs it is held in memory up
 * to what one key can hold, and an error names the setting beyond that.
 */
final class FileWriter extends OutputStream implements StreamCapabilities, Abortable {
    /** A reader checks, and holds in memory, so many bytes of a blob at a time. */
    static final int CHUNK_BYTES = 512 * 1024;

    private final Namespace names;
    private final Location at;
    private final Namespace.Plan plan;
    private final boolean overwrite;
    private final boolean makesDirectories;
    private final int inlineBytes;
    private final FileSystem.Statistics statistics;
    private final ByteArrayOutputStream held = new ByteArrayOutputStream(4096);
    private final CRC32C wholeCrc = new CRC32C();
    private final CRC32C chunkCrc = new CRC32C();
    private final List<Long> chunkCrcs = new ArrayList<>();
    private final String id = UUID.randomUUID().toString();
    private int chunkFilled;
    private long length;
    private Blobs.Intent intent;
    private BlobStore.Output blob;
    private IOException failure;
    private boolean isClosed;

    /** {@code plan} is null where what stands there is of no interest before the file is closed. */
    FileWriter(Namespace names, Location at, Namespace.Plan plan, boolean overwrite, boolean makesDirectories,
            int inlineBytes, FileSystem.Statistics statistics) {
        this.names = names;
        this.at = at;
        this.plan = plan;
        this.overwrite = overwrite;
        this.makesDirectories = makesDirectories;
        this.inlineBytes = names.blobs().hasPlace() ? inlineBytes : Node.INLINE_BYTES_MAX;
        this.statistics = statistics;
    }

    @Override
    public synchronized void write(int b) throws IOException {
        write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public synchronized void write(byte[] bytes, int from, int count) throws IOException {
        if (isClosed) {
            throw new PathIOException(at.toString(), "the stream is closed");
        }
        if (failure != null) {
            throw new PathIOException(at.toString(), "an earlier write failed: " + failure.getMessage());
        }
        try {
            if (blob == null && length + count > inlineBytes) {
                startBlob();
            }
            if (blob == null) {
                held.write(bytes, from, count);
                length += count;
            } else {
                writeToBlob(bytes, from, count);
            }
        } catch (IOException error) {
            failure = error;
            drop();
            throw error;
        }
        statistics.incrementBytesWritten(count);
    }

    private void startBlob() throws IOException {
        if (!names.blobs().hasPlace()) {
            throw new PathIOException(at.toString(), "a file above " + Node.INLINE_BYTES_MAX + " bytes is kept outside of the "
                    + "key-value space: set " + Bootstrap.SETTING + " to the nodes' listeners, as pyspark_raftlake.configure "
                    + "does, or " + HadoopBlobStore.SETTING + " to a directory that every executor reaches (in Spark with "
                    + "spark.hadoop. in front)");
        }
        intent = names.blobs().announce(at.pipeline(), id);
        blob = names.blobs().store().create(intent.uri(), uri -> intent = names.blobs().renew(intent, uri));
        byte[] first = held.toByteArray();
        held.reset();
        length = 0;
        writeToBlob(first, 0, first.length);
    }

    private void writeToBlob(byte[] bytes, int from, int count) throws IOException {
        blob.write(bytes, from, count);
        wholeCrc.update(bytes, from, count);
        length += count;
        while (count > 0) {
            int some = Math.min(count, CHUNK_BYTES - chunkFilled);
            chunkCrc.update(bytes, from, some);
            chunkFilled += some;
            from += some;
            count -= some;
            if (chunkFilled == CHUNK_BYTES) {
                endChunk();
            }
        }
    }

    private void endChunk() {
        chunkCrcs.add(chunkCrc.getValue());
        chunkCrc.reset();
        chunkFilled = 0;
    }

    /** Makes the file visible. Once only: what a second call finds is closed already. */
    @Override
    public synchronized void close() throws IOException {
        if (isClosed) {
            return;
        }
        isClosed = true;
        if (failure != null) {
            throw new PathIOException(at.toString(), "nothing was written, since a write failed: " + failure.getMessage());
        }
        if (blob == null) {
            putInline();
        } else {
            putBlob();
        }
    }

    private void putInline() throws IOException {
        Node file = Node.inline(System.currentTimeMillis(), held.toByteArray());
        put(file, null);
    }

    private void putBlob() throws IOException {
        try {
            blob.close();
        } catch (IOException error) {
            drop();
            throw error;
        }
        if (chunkFilled > 0) {
            endChunk();
        }
        Node.Blob place = new Node.Blob(blob.uri(), CHUNK_BYTES, chunkCrcs);
        Node file = Node.blob(System.currentTimeMillis(), id, length, wholeCrc.getValue(), place);
        try {
            put(file, intent);
        } catch (PathIOException | FileAlreadyExistsException | FileNotFoundException | ParentNotDirectoryException refused) {
            // After any other error the pointer may still come: the collector sees to it then.
            names.blobs().abandonRefused(intent);
            throw refused;
        }
    }

    private void put(Node file, Blobs.Intent content) throws IOException {
        try {
            Namespace.Plan toPut = plan == null ? names.expect(at, overwrite) : plan;
            names.putFile(toPut, file, content, overwrite, makesDirectories);
        } catch (FileAlreadyExistsException taken) {
            // By whoever fenced this writer, perhaps: that is the better answer then.
            names.confirmWriter();
            throw taken;
        }
    }

    @Override
    public synchronized AbortableResult abort() {
        boolean wasClosed = isClosed;
        isClosed = true;
        if (!wasClosed) {
            drop();
        }
        return new AbortableResult() {
            @Override
            public boolean alreadyClosed() {
                return wasClosed;
            }

            @Override
            public IOException anyCleanupException() {
                return null;
            }
        };
    }

    /** Lets go of what was written so far. */
    private void drop() {
        held.reset();
        // Where some of it may still arrive, the collector removes it later.
        if (intent != null && (blob == null || blob.abort())) {
            names.blobs().abandon(intent);
        }
    }

    /** Flushing makes nothing visible, and is no error: many writers do it. */
    @Override
    public void flush() {}

    @Override
    public boolean hasCapability(String capability) {
        return capability.equalsIgnoreCase("fs.capability.outputstream.abortable");
    }
}
