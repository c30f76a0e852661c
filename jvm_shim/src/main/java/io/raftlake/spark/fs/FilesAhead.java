package io.raftlake.spark.fs;

import io.raftlake.spark.log.Ahead;
import io.raftlake.spark.log.Ahead.Bringing;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Files that are read into memory before somebody opens them. They are of a kind that never changes. Each is handed out once.
 */
final class FilesAhead {
    /** Bytes that may still wait, here and elsewhere. */
    private final AtomicLong room;

    /** By their keys. */
    private final Map<String, Waiting> waiting = new HashMap<>();

    private record Waiting(Ahead<byte[]> content, long bytes) {}

    /** A file, its length or a bound of it, and how it is read. */
    record Wanted(Location at, long bytes, Bringing<byte[]> reading) {}

    FilesAhead(AtomicLong room) {
        this.room = room;
    }

    /** Begins to read these, one after the other, as far as there is room. Those that are read. */
    synchronized List<Location> begin(List<Wanted> files) {
        List<Wanted> chosen = new ArrayList<>();
        for (Wanted file : files) {
            if (!waiting.containsKey(file.at().key())) {
                if (room.addAndGet(-file.bytes()) < 0) {
                    room.addAndGet(file.bytes());
                    break;
                }
                chosen.add(file);
            }
        }
        List<Ahead<byte[]>> contents = Ahead.inTurn("a file that is read ahead", chosen.stream().map(Wanted::reading).toList());
        for (int i = 0; i < chosen.size(); i++) {
            waiting.put(chosen.get(i).at().key(), new Waiting(contents.get(i), chosen.get(i).bytes()));
        }
        return chosen.stream().map(Wanted::at).toList();
    }

    /** The content of a file, as soon as it is there; null where nobody reads it, or where that failed. */
    byte[] take(Location at) throws InterruptedIOException {
        Waiting found = remove(at);
        return found == null ? null : found.content().getOrNull();
    }

    private synchronized Waiting remove(Location at) {
        Waiting found = waiting.isEmpty() ? null : waiting.remove(at.key());
        if (found != null) {
            room.addAndGet(found.bytes());
        }
        return found;
    }

    /** Lets go of a file that nobody took. */
    void forget(Location at) {
        Waiting found = remove(at);
        if (found != null) {
            found.content().cancel();
        }
    }
}
