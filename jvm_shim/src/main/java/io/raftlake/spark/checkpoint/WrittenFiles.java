package io.raftlake.spark.checkpoint;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.Path;

/**
 * The content of the files that one manager wrote last. Spark reads the log of a source back in the batch that wrote it, and
 * once more when it compacts the log. A content is kept from the moment when the quorum has acknowledged the file, until the
 * manager deletes the file.
 *
 * <p>What another run changed meanwhile is not seen here. The fence refuses the next change of a run that reads old content.
 */
final class WrittenFiles {
    /** Spark compacts the log of a source each ten batches by default. */
    static final int FILES_MAX = 16;

    static final int FILE_BYTES_MAX = 1 << 16;

    private final Map<Path, byte[]> contents = new LinkedHashMap<>();

    /** Nothing where the file is not kept. */
    synchronized Optional<byte[]> content(Path file) {
        return Optional.ofNullable(contents.get(file));
    }

    private synchronized void put(Path file, byte[] content) {
        contents.remove(file);
        contents.put(file, content);
        if (contents.size() > FILES_MAX) {
            contents.remove(contents.keySet().iterator().next());
        }
    }

    /** Of a file, and of all that lies below a directory. */
    synchronized void forget(Path path) {
        String below = path + Path.SEPARATOR;
        contents.keySet().removeIf(kept -> kept.equals(path) || kept.toString().startsWith(below));
    }

    /** A stream that keeps what is written through it, once {@code out} was closed without an error. */
    Recorder recording(Path file, OutputStream out) {
        return new Recorder(file, out);
    }

    /** Passes all calls on, aborts too. */
    final class Recorder extends OutputStream implements Abortable {
        private final Path file;
        private final OutputStream out;
        private ByteArrayOutputStream copy = new ByteArrayOutputStream();

        private Recorder(Path file, OutputStream out) {
            this.file = file;
            this.out = out;
        }

        @Override
        public void write(int one) throws IOException {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int count) throws IOException {
            out.write(bytes, from, count);
            if (copy != null && copy.size() + count <= FILE_BYTES_MAX) {
                copy.write(bytes, from, count);
            } else {
                copy = null;
            }
        }

        @Override
        public void flush() throws IOException {
            out.flush();
        }

        @Override
        public void close() throws IOException {
            ByteArrayOutputStream whole = copy;
            copy = null;
            out.close();
            if (whole != null) {
                put(file, whole.toByteArray());
            }
        }

        @Override
        public AbortableResult abort() {
            copy = null;
            return ((Abortable) out).abort();
        }
    }
}
