package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static io.raftlake.spark.kit.Files.read;
import static io.raftlake.spark.kit.Files.write;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files that are copied to the local disk, as Spark does with those of a snapshot of state. */
class LocalCopyTest {
    private static final int LARGE = 2 * FileWriter.CHUNK_BYTES + 1;

    private final String pipeline = Spaces.newPipeline();
    private final Configuration conf = Spaces.confWithLogs();

    @TempDir
    java.nio.file.Path directory;

    private FileSystem files;

    @BeforeEach
    void open() throws IOException {
        files = Spaces.fileSystem(conf, pipeline);
    }

    @AfterEach
    void close() throws IOException {
        files.close();
    }

    private Path at(String path) {
        return new Path("raftlake://" + pipeline + "/" + path);
    }

    private Path local(String name) {
        return new Path(directory.resolve(name).toUri());
    }

    private List<String> names() throws IOException {
        try (var found = Files.walk(directory)) {
            return found.filter(Files::isRegularFile).map(each -> directory.relativize(each).toString()).sorted().toList();
        }
    }

    @Test
    void contentOfEachSizeArrivesAndNothingLiesBesideIt() throws IOException {
        for (int size : List.of(0, 1, 1000, FileWriter.CHUNK_BYTES, LARGE, 5_000_000)) {
            write(files, at("f" + size), bytes(size), false);
            files.copyToLocalFile(at("f" + size), local("d/e/copy" + size));
            assertArrayEquals(bytes(size), Files.readAllBytes(directory.resolve("d/e/copy" + size)));
        }
        assertEquals(6, names().size(), names().toString());
    }

    @Test
    void whatTheFileHadIsReplacedWithItsChecksum() throws IOException {
        FileSystem hadoop = FileSystem.getLocal(conf);
        write(hadoop, local("copy"), bytes(3000), false);
        write(hadoop, local("other"), bytes(30), false);
        assertEquals(List.of(".copy.crc", ".other.crc", "copy", "other"), names());
        write(files, at("f"), bytes(100), false);
        files.copyToLocalFile(at("f"), local("copy"));
        assertEquals(List.of(".other.crc", "copy", "other"), names());
        try (FSDataInputStream in = hadoop.open(local("copy"))) {
            assertArrayEquals(bytes(100), in.readAllBytes());
        }
    }

    @Test
    void directoriesAndMovesGoHadoopsWay() throws IOException {
        write(files, at("d/f"), bytes(10), false);
        write(files, at("d/e/g"), bytes(20), false);
        files.copyToLocalFile(at("d"), local("all"));
        assertArrayEquals(bytes(20), Files.readAllBytes(directory.resolve("all/e/g")));
        files.copyToLocalFile(at("d/f"), local("all"));
        assertArrayEquals(bytes(10), Files.readAllBytes(directory.resolve("all/f")));
        files.copyToLocalFile(true, at("d/f"), local("moved"));
        assertArrayEquals(bytes(10), Files.readAllBytes(directory.resolve("moved")));
        assertFalse(files.exists(at("d/f")));
        assertTrue(files.exists(at("d/e/g")));
    }

    @Test
    void aMissingFileLeavesTheLocalOneAsItWas() throws IOException {
        Files.write(directory.resolve("copy"), bytes(7));
        assertThrows(FileNotFoundException.class, () -> files.copyToLocalFile(at("none"), local("copy")));
        assertArrayEquals(bytes(7), Files.readAllBytes(directory.resolve("copy")));
    }

    @Test
    void aLocalFileThatCannotBeOpenedStays() throws IOException {
        write(files, at("f"), bytes(7), false);
        Files.createDirectory(directory.resolve("d"));
        LocalCopy copy = LocalCopy.of(local("d/copy")).orElseThrow();
        Files.createDirectories(directory.resolve("d/copy"));
        assertThrows(FileNotFoundException.class, () -> copy.take(files.open(at("f"))));
        assertTrue(Files.isDirectory(directory.resolve("d/copy")));
    }

    @Test
    void damageLeavesNoPart() throws IOException {
        Configuration outside = Spaces.conf();
        java.nio.file.Path base = directory.resolve("base");
        outside.set("raftlake.fs.base.uri", base.toUri().toString());
        try (FileSystem large = Spaces.fileSystem(outside, pipeline)) {
            write(large, at("f"), bytes(LARGE), false);
            java.nio.file.Path blob;
            try (var found = Files.walk(base)) {
                blob = found.filter(each -> Files.isRegularFile(each) && !each.toString().endsWith(".crc"))
                        .findFirst()
                        .orElseThrow();
            }
            byte[] content = Files.readAllBytes(blob);
            content[LARGE - 1] ^= 1;
            Files.write(blob, content);
            Files.deleteIfExists(blob.resolveSibling("." + blob.getFileName() + ".crc"));
            assertThrows(IOException.class, () -> large.copyToLocalFile(at("f"), local("copy")));
            assertFalse(Files.exists(directory.resolve("copy")));
        }
    }

    @Test
    void whatIsLeftIsTransferred() throws IOException {
        write(files, at("f"), bytes(LARGE), false);
        for (int from : List.of(0, 1, FileWriter.CHUNK_BYTES - 1, FileWriter.CHUNK_BYTES, LARGE - 1, LARGE)) {
            try (FSDataInputStream in = files.open(at("f"))) {
                InputStream content = in.getWrappedStream();
                ((Content) content).seek(from);
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                assertEquals(LARGE - from, content.transferTo(out));
                assertArrayEquals(Arrays.copyOfRange(bytes(LARGE), from, LARGE), out.toByteArray());
                assertEquals(-1, content.read());
                ((Content) content).seek(from);
                assertArrayEquals(out.toByteArray(), content.readAllBytes());
                assertEquals(-1, content.read());
            }
        }
    }

    @Test
    void transferredBytesCountAsRead() throws IOException {
        FileSystem.Statistics statistics = new FileSystem.Statistics("raftlake");
        Content content = Content.inline(Location.of(pipeline, "/f"), bytes(10), statistics);
        content.seek(3);
        content.transferTo(OutputStream.nullOutputStream());
        assertEquals(7, statistics.getBytesRead());
        content.close();
        assertThrows(IOException.class, () -> content.transferTo(OutputStream.nullOutputStream()));
    }

    /** Hadoop's own copy ends with a ClassCastException where the class for local files is the raw one. */
    @Test
    void localFilesOfAnyClassAreTaken() throws IOException {
        for (Class<?> each : List.of(RawLocalFileSystem.class, LocalFileSystem.class)) {
            Configuration chosen = Spaces.confWithLogs();
            chosen.set("fs.file.impl", each.getName());
            chosen.setBoolean("fs.file.impl.disable.cache", true);
            Files.write(directory.resolve("here"), bytes(LARGE));
            Files.write(directory.resolve("other"), bytes(10));
            try (FileSystem taking = Spaces.fileSystem(chosen, pipeline)) {
                taking.copyFromLocalFile(new Path(directory.resolve("here").toString()), at("there"));
                assertArrayEquals(bytes(LARGE), read(taking, at("there")));
                assertThrows(IOException.class, () -> taking.copyFromLocalFile(false, false, local("other"), at("there")));
                taking.copyFromLocalFile(true, true, local("other"), at("there"));
                assertArrayEquals(bytes(10), read(taking, at("there")));
                assertEquals(List.of("here"), names());
            }
        }
    }

    @Test
    void pathsOfOtherFileSystemsAndDirectoriesAreNone() {
        assertTrue(LocalCopy.of(local("x")).isPresent());
        assertTrue(LocalCopy.of(new Path("relative")).isPresent());
        assertTrue(LocalCopy.of(new Path(directory.toUri())).isEmpty());
        assertTrue(LocalCopy.of(new Path("hdfs://host/x")).isEmpty());
    }
}
