package io.raftlake.spark.fs;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.Optional;
import org.apache.hadoop.fs.Path;

/** A file of the local disk that takes the content of another one. */
public final class LocalCopy {
    private final File file;

    private LocalCopy(File file) {
        this.file = file;
    }

    /** Nothing where the path is that of a directory, or of another file system. */
    public static Optional<LocalCopy> of(Path path) {
        String scheme = path.toUri().getScheme();
        File file = new File(path.toUri().getPath()).getAbsoluteFile();
        boolean isFile = (scheme == null || scheme.equals("file")) && !file.isDirectory();
        return isFile ? Optional.of(new LocalCopy(file)) : Optional.empty();
    }

    /** Directories are made, and what the file had is replaced. Where this fails half way, no file is left. */
    public void take(InputStream content) throws IOException {
        Files.createDirectories(file.getParentFile().toPath());
        OutputStream out = new FileOutputStream(file);
        try (out) {
            // Hadoop's checksum of what was there before would make the new content unreadable for Hadoop.
            Files.deleteIfExists(new File(file.getParentFile(), "." + file.getName() + ".crc").toPath());
            content.transferTo(out);
        } catch (IOException | RuntimeException failed) {
            file.delete();
            throw failed;
        }
    }
}
