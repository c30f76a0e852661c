package io.raftlake.spark.fs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.kit.Files;
import io.raftlake.spark.kit.Spaces;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Copies on the local disk, and what is read where they are damaged. */
class BlobCopiesTest {
    private static final int CHUNK = 1000;
    private static final byte[] CONTENT = Files.bytes(2 * CHUNK + 451);
    private static final String URI = "file:/blobs/1";

    @TempDir
    File directory;

    private final BlobCopies copies = new BlobCopies(() -> directory);

    /** A place that counts how often a blob is opened. */
    private static final class Place implements BlobStore {
        private final byte[] content;
        private int opened;

        Place(byte[] content) {
            this.content = content;
        }

        @Override
        public FSDataInputStream open(String uri) throws IOException {
            opened++;
            return new FSDataInputStream(Content.inline(location(), content, new FileSystem.Statistics("file")));
        }

        @Override
        public String uriOf(String pipeline, String id) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Output create(String uri, Announcement announcement) {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean delete(String uri) {
            throw new UnsupportedOperationException();
        }
    }

    private static Location location() throws IOException {
        return Location.of("p", "/large");
    }

    private static Node node() {
        List<Long> crcs = new ArrayList<>();
        for (int from = 0; from < CONTENT.length; from += CHUNK) {
            crcs.add(Node.crc(CONTENT, from, Math.min(CHUNK, CONTENT.length - from)));
        }
        Node.Blob blob = new Node.Blob(URI, CHUNK, crcs);
        return Node.blob(0, "1", CONTENT.length, Node.crc(CONTENT, 0, CONTENT.length), blob);
    }

    private byte[] read(BlobStore place) throws IOException {
        BlobReader reader = new BlobReader(location(), node(), place, copies);
        FileSystem.Statistics statistics = new FileSystem.Statistics("file");
        try (InputStream content = new Content(location(), CONTENT.length, CHUNK, reader, statistics)) {
            return content.readAllBytes();
        }
    }

    private File onlyFile() {
        File[] files = directory.listFiles();
        assertEquals(1, files.length);
        return files[0];
    }

    @Test
    void aCopyIsReadInPlaceOfTheBlob() throws IOException {
        Place place = new Place(CONTENT);
        assertArrayEquals(CONTENT, read(place));
        assertEquals(1, place.opened);
        copies.add(URI, new ByteArrayInputStream(CONTENT));
        assertEquals(CONTENT.length, copies.bytes());
        assertArrayEquals(CONTENT, read(place));
        assertEquals(1, place.opened);
    }

    @Test
    void aDamagedChunkIsReadFromTheBlobAndEndsTheCopy() throws IOException {
        for (int damaged : new int[] {0, CHUNK + 7, CONTENT.length - 1}) {
            copies.add(URI, new ByteArrayInputStream(CONTENT));
            try (RandomAccessFile file = new RandomAccessFile(onlyFile(), "rw")) {
                file.seek(damaged);
                file.write(CONTENT[damaged] + 1);
            }
            Place place = new Place(CONTENT);
            assertArrayEquals(CONTENT, read(place), "damaged at " + damaged);
            assertEquals(1, place.opened);
            assertFalse(copies.has(URI));
            assertEquals(0, directory.listFiles().length);
        }
    }

    @Test
    void aCopyThatIsTooShortOrGoneIsNone() throws IOException {
        copies.add(URI, new ByteArrayInputStream(Arrays.copyOf(CONTENT, CONTENT.length - 1)));
        assertArrayEquals(CONTENT, read(new Place(CONTENT)));
        assertFalse(copies.has(URI));
        copies.add(URI, new ByteArrayInputStream(CONTENT));
        assertTrue(onlyFile().delete());
        assertArrayEquals(CONTENT, read(new Place(CONTENT)));
        assertFalse(copies.has(URI));
    }

    @Test
    void aDamagedBlobStaysAnError() throws IOException {
        byte[] damaged = CONTENT.clone();
        damaged[CHUNK]++;
        Place place = new Place(damaged);
        assertTrue(assertThrows(IOException.class, () -> read(place)).getMessage().contains("damaged"));
    }

    @Test
    void whatFailedHalfWayLeavesNothing() {
        InputStream broken = new InputStream() {
            private int given;

            @Override
            public int read() throws IOException {
                if (given++ > 100) {
                    throw new IOException("lost");
                }
                return 7;
            }
        };
        assertThrows(IOException.class, () -> copies.add(URI, broken));
        assertFalse(copies.has(URI));
        assertEquals(0, copies.bytes());
        assertEquals(0, directory.listFiles().length);
    }

    @Test
    void whatIsNotRetainedIsDeleted() throws IOException {
        copies.add("a", new ByteArrayInputStream(new byte[10]));
        copies.add("b", new ByteArrayInputStream(new byte[20]));
        copies.add("b", new ByteArrayInputStream(new byte[21]));
        assertEquals(2, directory.listFiles().length);
        assertEquals(31, copies.bytes());
        copies.retain(Set.of("b", "c"));
        assertEquals(21, onlyFile().length());
        assertEquals(21, copies.bytes());
        assertTrue(copies.has("b"));
    }

    @Test
    void aFileThatWasReplacedIsNotReadFromTheCopyOfItsOldContent() throws IOException {
        String pipeline = Spaces.newPipeline();
        Path path = new Path("raftlake://" + pipeline + "/large");
        byte[] second = CONTENT.clone();
        second[5]++;
        Configuration conf = Spaces.confWithLogs();
        conf.set(FsSettings.INLINE_BYTES, "10");
        try (FileSystem files = Spaces.fileSystem(conf, pipeline)) {
            Files.write(files, path, CONTENT, false);
            String uri = ((RaftlakeFileSystem) files).files().copy(path).orElseThrow();
            assertTrue(BlobCopies.OF_PROCESS.has(uri));
            assertArrayEquals(CONTENT, Files.read(files, path));
            Files.write(files, path, second, true);
            assertArrayEquals(second, Files.read(files, path));
            assertTrue(files.delete(path, false));
            assertThrows(FileNotFoundException.class, () -> Files.read(files, path));
            Files.write(files, path, new byte[3], false);
            assertTrue(((RaftlakeFileSystem) files).files().copy(path).isEmpty(), "it is in its key");
        } finally {
            BlobCopies.OF_PROCESS.retain(Set.of());
        }
    }
}
