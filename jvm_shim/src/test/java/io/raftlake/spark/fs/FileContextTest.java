package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.EnumSet;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** FileContext is how Spark writes checkpoints: a temporary file, then a rename that overwrites or not. */
class FileContextTest {
    private final String pipeline = "ctx_" + Spaces.newPipeline();
    private FileContext files;

    @BeforeEach
    void open() throws IOException {
        files = FileContext.getFileContext(URI.create("raftlake://" + pipeline + "/"), Spaces.conf());
    }

    private Path at(String path) {
        return new Path("raftlake://" + pipeline + "/" + path);
    }

    private void write(String path, int length) throws IOException {
        try (FSDataOutputStream out = files.create(at(path), EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE),
                Options.CreateOpts.createParent())) {
            out.write(bytes(length));
        }
    }

    private byte[] read(String path) throws IOException {
        try (FSDataInputStream in = files.open(at(path))) {
            return in.readAllBytes();
        }
    }

    @Test
    void aRenameOverwritesOnlyWhereAsked() throws IOException {
        write("f", 1);
        write(".f.tmp", 2);
        assertThrows(FileAlreadyExistsException.class, () -> files.rename(at(".f.tmp"), at("f")));
        assertArrayEquals(bytes(1), read("f"));
        files.rename(at(".f.tmp"), at("f"), Options.Rename.OVERWRITE);
        assertArrayEquals(bytes(2), read("f"));
        assertFalse(files.util().exists(at(".f.tmp")));
    }

    @Test
    void aDirectoryTakesThePlaceOfAnEmptyOne() throws IOException {
        write("a/f", 1);
        write("full/g", 1);
        files.mkdir(at("empty"), null, true);
        assertThrows(PathIsNotEmptyDirectoryException.class,
                () -> files.rename(at("a"), at("full"), Options.Rename.OVERWRITE));
        assertThrows(IOException.class, () -> files.rename(at("a"), at("full/g"), Options.Rename.OVERWRITE));
        files.rename(at("a"), at("empty"), Options.Rename.OVERWRITE);
        assertArrayEquals(bytes(1), read("empty/f"));
        assertThrows(PathIsNotEmptyDirectoryException.class,
                () -> files.rename(at("full/g"), at("full"), Options.Rename.OVERWRITE));
    }

    @Test
    void errorsTellWhyNot() throws IOException {
        write("f", 1);
        assertThrows(FileNotFoundException.class, () -> files.rename(at("none"), at("g")));
        assertThrows(FileNotFoundException.class, () -> files.rename(at("f"), at("none/g")));
        assertThrows(FileAlreadyExistsException.class, () -> files.rename(at("f"), at("f")));
        assertThrows(FileNotFoundException.class, () -> files.create(at("none/g"), EnumSet.of(CreateFlag.CREATE)));
        assertThrows(FileAlreadyExistsException.class, () -> files.create(at("f"), EnumSet.of(CreateFlag.CREATE)));
        assertThrows(UnsupportedOperationException.class,
                () -> files.create(at("f"), EnumSet.of(CreateFlag.CREATE, CreateFlag.APPEND)));
    }

    /** The name of this pipeline is no host name, and Hadoop compares hosts. */
    @Test
    void pathsOfOtherPipelinesAreTakenToThem() throws IOException {
        write("f", 1);
        Path other = new Path("raftlake://other_" + pipeline + "/f");
        assertFalse(files.util().exists(other));
        assertTrue(files.util().exists(at("f")));
    }

    @Test
    void namesWithColons() throws IOException {
        write("d/2026-01-01T00:00", 3);
        assertArrayEquals(bytes(3), read("d/2026-01-01T00:00"));
    }
}
