package io.raftlake.spark.kit;

import java.io.IOException;
import java.util.Arrays;
import java.util.Random;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Short words for what tests do with files. */
public final class Files {
    private Files() {}

    public static byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    public static void write(FileSystem files, Path path, byte[] content, boolean overwrite) throws IOException {
        try (FSDataOutputStream out = files.create(path, overwrite)) {
            out.write(content);
        }
    }

    public static byte[] read(FileSystem files, Path path) throws IOException {
        try (FSDataInputStream in = files.open(path)) {
            return in.readAllBytes();
        }
    }

    /** Names in a directory. */
    public static String names(FileSystem files, Path directory) throws IOException {
        return Arrays.stream(files.listStatus(directory)).map(FileStatus::getPath).map(Path::getName).toList().toString();
    }
}
