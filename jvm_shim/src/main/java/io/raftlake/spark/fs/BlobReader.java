package io.raftlake.spark.fs;

import java.io.EOFException;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.PathIOException;

/** The chunks of a blob. A chunk whose checksum is not the one that its file names is an error, and never handed out. */
final class BlobReader implements Content.Chunks {
    private final Location at;
    private final long length;
    private final Node.Blob blob;
    private final FSDataInputStream stream;

    BlobReader(Location at, Node file, FSDataInputStream stream) throws IOException {
        this.at = at;
        this.length = file.length();
        this.blob = file.blob();
        this.stream = stream;
        long chunks = (length + blob.chunkBytes() - 1) / blob.chunkBytes();
        if (blob.chunkCrcs().size() != chunks) {
            throw damaged("it has " + blob.chunkCrcs().size() + " checksums for " + chunks + " chunks");
        }
    }

    @Override
    public byte[] read(int number) throws IOException {
        long from = (long) number * blob.chunkBytes();
        byte[] chunk = new byte[(int) Math.min(blob.chunkBytes(), length - from)];
        try {
            if (stream.getPos() != from) {
                stream.seek(from);
            }
            stream.readFully(chunk);
        } catch (EOFException end) {
            throw damaged("it ends before " + length + " bytes");
        }
        if (Node.crc(chunk, 0, chunk.length) != blob.chunkCrcs().get(number)) {
            throw damaged("the checksum of its bytes from " + from + " is wrong");
        }
        return chunk;
    }

    private IOException damaged(String reason) {
        return new PathIOException(at.toString(), "its blob " + blob.uri() + " is damaged: " + reason);
    }

    @Override
    public void close() throws IOException {
        stream.close();
    }
}
