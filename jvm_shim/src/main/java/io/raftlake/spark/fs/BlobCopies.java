package io.raftlake.spark.fs;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.util.Utils$;

/**
 * Copies of blobs on the local disk of this process, by the places of the blobs. A place is used once, so a copy is never out
 * of date. Who reads a file asks the key space first, which names the place and the checksums of the chunks: a file that was
 * deleted or replaced leads to no copy, and a chunk that is damaged is read from the blob.
 */
public final class BlobCopies {
    /** In a directory that Spark deletes when the process ends. */
    public static final BlobCopies OF_PROCESS = new BlobCopies(BlobCopies::localDirectory);

    private final Supplier<File> made;
    private final Map<String, Copy> copies = new HashMap<>();
    private File directory;
    private long numbered;

    private record Copy(File file, long bytes) {}

    /** {@code made} makes the directory, when it is needed. */
    BlobCopies(Supplier<File> made) {
        this.made = made;
    }

    private static File localDirectory() {
        SparkEnv env = SparkEnv.get();
        return Utils$.MODULE$.createExecutorLocalTempDir(env == null ? new SparkConf() : env.conf(), "raftlake-standby");
    }

    /** What all copies take. */
    public synchronized long bytes() {
        return copies.values().stream().mapToLong(Copy::bytes).sum();
    }

    public synchronized boolean has(String uri) {
        return copies.containsKey(uri);
    }

    /** The copy of a blob, to be closed by the caller; null where there is none. */
    synchronized FileChannel open(String uri) {
        Copy copy = copies.get(uri);
        if (copy == null) {
            return null;
        }
        try {
            return FileChannel.open(copy.file().toPath(), StandardOpenOption.READ);
        } catch (IOException gone) {
            forget(uri);
            return null;
        }
    }

    /** Copies a blob. It is there when this returns, and nothing of it where this fails. */
    void add(String uri, InputStream content) throws IOException {
        File file = next();
        long bytes;
        try {
            bytes = Files.copy(content, file.toPath());
        } catch (IOException | RuntimeException failed) {
            delete(file);
            throw failed;
        }
        synchronized (this) {
            Copy before = copies.put(uri, new Copy(file, bytes));
            if (before != null) {
                delete(before.file());
            }
        }
    }

    private synchronized File next() {
        if (directory == null) {
            directory = made.get();
        }
        return new File(directory, numbered++ + ".copy");
    }

    /** Deletes a copy: one that is damaged. */
    synchronized void forget(String uri) {
        Copy copy = copies.remove(uri);
        if (copy != null) {
            delete(copy.file());
        }
    }

    /** Deletes the copies of all other blobs. */
    public synchronized void retain(Set<String> uris) {
        for (Iterator<Map.Entry<String, Copy>> all = copies.entrySet().iterator(); all.hasNext(); ) {
            Map.Entry<String, Copy> one = all.next();
            if (!uris.contains(one.getKey())) {
                delete(one.getValue().file());
                all.remove();
            }
        }
    }

    /** A file that cannot be deleted goes with the directory. */
    private static void delete(File file) {
        file.delete();
    }
}
