package io.raftlake.spark.fs;

import io.raftlake.spark.fs.FilesAhead.Wanted;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.Path;

/** The files that one reader will open soon; {@link QuorumFiles#open} hands them out. They never change, by their names. */
public final class ReadAhead implements AutoCloseable {
    private final QuorumFiles files;
    private final FilesAhead ahead;
    private final List<Location> begun = new ArrayList<>();
    private boolean isClosed;

    ReadAhead(QuorumFiles files, FilesAhead ahead) {
        this.files = files;
        this.ahead = ahead;
    }

    /** Sees a content before it is handed out. */
    @FunctionalInterface
    public interface Seeing {
        void see(byte[] content) throws IOException;
    }

    /** Begins to read a file of at most so many bytes. A larger one is not kept. */
    public void begin(Path path, int bytesMax, Seeing seeing) throws IOException {
        begin(List.of(new Wanted(QuorumFiles.at(path), bytesMax, () -> {
            byte[] content = files.read(path, bytesMax);
            seeing.see(content);
            return content;
        })));
    }

    /** Begins to read these, one after the other, as far as there is room; by their lengths. */
    public void begin(Map<Path, Long> lengths) throws IOException {
        List<Wanted> wanted = new ArrayList<>();
        for (Map.Entry<Path, Long> each : lengths.entrySet()) {
            Path path = each.getKey();
            int bytes = (int) Math.min(Integer.MAX_VALUE, each.getValue());
            wanted.add(new Wanted(QuorumFiles.at(path), each.getValue(), () -> files.read(path, bytes)));
        }
        begin(wanted);
    }

    private synchronized void begin(List<Wanted> wanted) {
        if (!isClosed) {
            begun.addAll(ahead.begin(wanted));
        }
    }

    /** Lets go of what was not opened. */
    @Override
    public synchronized void close() {
        isClosed = true;
        begun.forEach(ahead::forget);
        begun.clear();
    }
}
