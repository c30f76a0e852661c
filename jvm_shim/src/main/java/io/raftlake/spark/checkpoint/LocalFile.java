package io.raftlake.spark.checkpoint;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.UUID;
import org.apache.hadoop.fs.FileAlreadyExistsException;

/** A file of {@link LocalFiles} under way: it gets its name when it is closed, and its content is on the disk by then. */
final class LocalFile extends OutputStream {
    private static final int BUFFER_BYTES = 64 * 1024;

    private final Path target;
    private final Path draft;
    private final boolean overwrite;
    private final FileChannel channel;
    private final ByteBuffer buffer = ByteBuffer.allocate(BUFFER_BYTES);
    private boolean isOver;

    LocalFile(Path target, boolean overwrite) throws IOException {
        this.target = target;
        this.overwrite = overwrite;
        // Spark's name for a draft: nobody who lists a checkpoint takes it for a file.
        this.draft = target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
        this.channel = FileChannel.open(draft, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
    }

    /** Where Hadoop keeps the checksum of a file. */
    static Path checksumOf(Path file) {
        return file.resolveSibling("." + file.getFileName() + ".crc");
    }

    @Override
    public void write(int one) throws IOException {
        write(new byte[] {(byte) one}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
        for (int done = 0; done < length; ) {
            if (!buffer.hasRemaining()) {
                drain();
            }
            int part = Math.min(length - done, buffer.remaining());
            buffer.put(bytes, offset + done, part);
            done += part;
        }
    }

    private void drain() throws IOException {
        buffer.flip();
        while (buffer.hasRemaining()) {
            channel.write(buffer);
        }
        buffer.clear();
    }

    @Override
    public void close() throws IOException {
        if (isOver) {
            return;
        }
        isOver = true;
        try {
            drain();
            channel.force(true);
            channel.close();
            Files.deleteIfExists(checksumOf(target));
            publish();
        } finally {
            channel.close();
            Files.deleteIfExists(draft);
        }
        try (FileChannel directory = FileChannel.open(target.getParent(), StandardOpenOption.READ)) {
            directory.force(true);
        }
    }

    private void publish() throws IOException {
        if (overwrite) {
            Files.move(draft, target, StandardCopyOption.ATOMIC_MOVE);
            return;
        }
        try {
            // Unlike a move it fails where the name is taken.
            Files.createLink(target, draft);
        } catch (java.nio.file.FileAlreadyExistsException taken) {
            throw exists();
        } catch (UnsupportedOperationException | FileSystemException without) {
            // A disk without links, as of some containers. There two may both find the name free, as with Spark's own managers.
            if (Files.exists(target)) {
                throw exists();
            }
            Files.move(draft, target, StandardCopyOption.ATOMIC_MOVE);
        }
    }

    private FileAlreadyExistsException exists() {
        return new FileAlreadyExistsException(target + " exists already");
    }

    /** Nothing of it is seen, unless it was closed before. */
    void cancel() {
        if (isOver) {
            return;
        }
        isOver = true;
        try {
            channel.close();
            Files.deleteIfExists(draft);
        } catch (IOException error) {
            throw CheckpointFiles.sneaky(error);
        }
    }
}
