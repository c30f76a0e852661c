package io.raftlake.spark.fs;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.PathIOException;

/**
 * The chunks of a blob: from a copy on the local disk where there is one, else from the blob. A chunk whose checksum is not the
 * one that its file names is never handed out. In a copy it ends the copy, in the blob it is an error.
 */
final class BlobReader implements Content.Chunks {
    private final Location at;
    private final long length;
    private final Node.Blob blob;
    private final BlobStore store;
    private final BlobCopies copies;
    private FileChannel copy;
    private FSDataInputStream stream;

    /** FileNotFoundException where there is neither copy nor blob. */
    BlobReader(Location at, Node file, BlobStore store, BlobCopies copies) throws IOException {
        this.at = at;
        this.length = file.length();
        this.blob = file.blob();
        this.store = store;
        this.copies = copies;
        long chunks = (length + blob.chunkBytes() - 1) / blob.chunkBytes();
        if (blob.chunkCrcs().size() != chunks) {
            throw damaged("it has " + blob.chunkCrcs().size() + " checksums for " + chunks + " chunks");
        }
        copy = copies.open(blob.uri());
        if (copy == null) {
            stream = store.open(blob.uri());
        }
    }

    @Override
    public byte[] read(int number) throws IOException {
        long from = (long) number * blob.chunkBytes();
        byte[] chunk = new byte[(int) Math.min(blob.chunkBytes(), length - from)];
        if (copy != null) {
            if (isCopied(chunk, from) && isRight(chunk, number)) {
                return chunk;
            }
            copies.forget(blob.uri());
            closeCopy();
        }
        if (stream == null) {
            stream = store.open(blob.uri());
        }
        try {
            if (stream.getPos() != from) {
                stream.seek(from);
            }
            stream.readFully(chunk);
        } catch (EOFException end) {
            throw damaged("it ends before " + length + " bytes");
        }
        if (!isRight(chunk, number)) {
            throw damaged("the checksum of its bytes from " + from + " is wrong");
        }
        return chunk;
    }

    private boolean isCopied(byte[] into, long from) {
        ByteBuffer room = ByteBuffer.wrap(into);
        try {
            while (room.hasRemaining()) {
                if (copy.read(room, from + room.position()) < 0) {
                    return false;
                }
            }
            return true;
        } catch (IOException unreadable) {
            return false;
        }
    }

    private boolean isRight(byte[] chunk, int number) {
        return Node.crc(chunk, 0, chunk.length) == blob.chunkCrcs().get(number);
    }

    private IOException damaged(String reason) {
        return new PathIOException(at.toString(), "its blob " + blob.uri() + " is damaged: " + reason);
    }

    private void closeCopy() throws IOException {
        FileChannel open = copy;
        copy = null;
        if (open != null) {
            open.close();
        }
    }

    @Override
    public void close() throws IOException {
        closeCopy();
        if (stream != null) {
            stream.close();
        }
    }
}
