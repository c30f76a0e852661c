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
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Large files: a blob in another file system, and a pointer. */
class BlobTest {
    private static final int LARGE = 1_500_000;
    private static final int WAIT_S = 30;

    private final String pipeline = Spaces.newPipeline();
    private final Configuration conf = Spaces.conf();

    @TempDir
    java.nio.file.Path directory;

    private FileSystem files;
    private HadoopBlobStore store;

    @BeforeEach
    void open() throws IOException {
        conf.set("raftlake.fs.base.uri", directory.toUri().toString());
        conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
        conf.setBoolean("fs.file.impl.disable.cache", true);
        files = Spaces.fileSystem(conf, pipeline);
        store = new HadoopBlobStore(directory.toUri().toString(), conf);
    }

    @AfterEach
    void close() throws IOException {
        files.close();
    }

    private Path at(String path) {
        return new Path("raftlake://" + pipeline + "/" + path);
    }

    private List<java.nio.file.Path> blobs() {
        java.nio.file.Path place = directory.resolve(pipeline);
        if (!Files.isDirectory(place)) {
            return List.of();
        }
        try (var found = Files.list(place)) {
            return found.toList();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** What a {@link #storeThatDeletes} does for {@link BlobStore#delete}. */
    private interface Deletion {
        boolean of(String uri) throws IOException;
    }

    private BlobStore storeThatDeletes(Deletion deletion) {
        return new BlobStore() {
            @Override
            public String uriOf(String pipeline, String id) {
                return store.uriOf(pipeline, id);
            }

            @Override
            public Output create(String uri, Announcement announcement) throws IOException {
                return store.create(uri, announcement);
            }

            @Override
            public FSDataInputStream open(String uri) throws IOException {
                return store.open(uri);
            }

            @Override
            public boolean delete(String uri) throws IOException {
                return deletion.of(uri);
            }
        };
    }

    private int intents() throws IOException {
        return Spaces.SPACE.list(ListRequest.deep("/fs-blobs/" + pipeline + "/", false)).entries().size();
    }

    private int collect(long ageMs) throws IOException {
        return new BlobCollector(Spaces.SPACE, store, ageMs).collect(pipeline, System.currentTimeMillis() + 10_000);
    }

    @Test
    void aLargeFileIsOneBlobAndComesBack() throws IOException {
        try (FSDataOutputStream out = files.create(at("f"))) {
            byte[] content = bytes(LARGE);
            out.write(content[0]);
            out.write(content, 1, 60_000);
            out.write(content, 60_001, LARGE - 60_001);
        }
        assertEquals(1, blobs().size());
        assertEquals(0, intents());
        assertEquals(LARGE, files.getFileStatus(at("f")).getLen());
        assertArrayEquals(bytes(LARGE), read(files, at("f")));
        try (FSDataInputStream in = files.open(at("f"))) {
            byte[] some = new byte[600_000];
            in.readFully(500_000, some);
            assertArrayEquals(Arrays.copyOfRange(bytes(LARGE), 500_000, 1_100_000), some);
        }
        write(files, at("small"), bytes(65536), false);
        assertEquals(1, blobs().size());
    }

    @Test
    void bytesAroundTheEndOfEachChunkAreTheRightOnes() throws IOException {
        byte[] content = bytes(LARGE);
        write(files, at("f"), content, false);
        try (FSDataInputStream in = files.open(at("f"))) {
            for (int end = FileWriter.CHUNK_BYTES; end < LARGE; end += FileWriter.CHUNK_BYTES) {
                for (int from = end - 2; from <= end + 1; from++) {
                    in.seek(from);
                    assertEquals(content[from] & 0xFF, in.read());
                    byte[] two = new byte[2];
                    in.readFully(from, two);
                    assertArrayEquals(Arrays.copyOfRange(content, from, from + 2), two);
                }
            }
            in.seek(LARGE - 1);
            assertEquals(content[LARGE - 1] & 0xFF, in.read());
            assertEquals(-1, in.read());
        }
    }

    @Test
    void theChecksumDoesNotDependOnWhereTheContentIs() throws IOException {
        write(files, at("blob"), bytes(100_000), false);
        Configuration plain = Spaces.conf();
        try (FileSystem inline = Spaces.fileSystem(plain, pipeline)) {
            write(inline, at("inline"), bytes(100_000), false);
            assertEquals(inline.getFileChecksum(at("inline")), files.getFileChecksum(at("blob")));
            String told = assertThrows(IOException.class, () -> inline.open(at("blob"))).getMessage();
            assertTrue(told.contains("raftlake.fs.base.uri"), told);
        }
    }

    @Test
    void aRenameMovesThePointerOnly() throws IOException {
        write(files, at("d/f"), bytes(LARGE), false);
        List<java.nio.file.Path> before = blobs();
        files.rename(at("d"), at("e"));
        assertEquals(before, blobs());
        assertArrayEquals(bytes(LARGE), read(files, at("e/f")));
    }

    @Test
    void whatNothingPointsToAnyMoreIsRemoved() throws IOException {
        write(files, at("f"), bytes(LARGE), false);
        write(files, at("f"), bytes(LARGE + 1), true);
        assertEquals(1, blobs().size());
        assertArrayEquals(bytes(LARGE + 1), read(files, at("f")));
        write(files, at("d/g"), bytes(LARGE), false);
        write(files, at("d/h"), bytes(LARGE), false);
        files.delete(at("f"), false);
        assertEquals(2, blobs().size());
        files.delete(at("d"), true);
        assertEquals(0, blobs().size());
        assertEquals(0, intents());
    }

    @Test
    void anAbortedOrLosingWriterLeavesNoBlob() throws IOException {
        FSDataOutputStream aborted = files.create(at("f"));
        aborted.write(bytes(LARGE));
        assertEquals(1, intents());
        aborted.abort();
        assertEquals(0, blobs().size());
        FSDataOutputStream late = files.create(at("f"), false);
        late.write(bytes(LARGE));
        write(files, at("f"), bytes(3), false);
        assertThrows(FileAlreadyExistsException.class, late::close);
        assertEquals(0, blobs().size());
        assertEquals(0, intents());
        assertArrayEquals(bytes(3), read(files, at("f")));
    }

    /** A writer that died before its pointer: the stream is never closed. */
    @Test
    void aCrashBetweenBlobAndPointerLeavesAnOrphanThatIsCollected() throws IOException {
        FSDataOutputStream dead = files.create(at("f"));
        dead.write(bytes(LARGE));
        dead.flush();
        write(files, at("alive"), bytes(LARGE), false);
        assertEquals(2, blobs().size());
        assertEquals(0, collect(3_600_000), "too young");
        assertEquals(1, collect(1));
        assertEquals(1, blobs().size());
        assertEquals(0, intents());
        assertFalse(files.exists(at("f")));
        assertArrayEquals(bytes(LARGE), read(files, at("alive")));
    }

    /** It lives, but was so slow that its blob was taken for an orphan. */
    @Test
    void aWriterWhoseBlobWasCollectedCannotPutItsPointer() throws IOException {
        FSDataOutputStream slow = files.create(at("f"));
        slow.write(bytes(LARGE));
        collect(1);
        String told = assertThrows(IOException.class, slow::close).getMessage();
        assertTrue(told.contains("raftlake.fs.orphan.age.ms"), told);
        assertFalse(files.exists(at("f")));
    }

    /** The collector died after it had claimed the orphan, before the blob was gone. */
    @Test
    void aClaimedOrphanIsOutOfReachOfItsWriter() throws IOException {
        FSDataOutputStream slow = files.create(at("f"));
        slow.write(bytes(LARGE));
        BlobStore broken = storeThatDeletes(uri -> {
            throw new IOException("the store is down");
        });
        assertThrows(IOException.class,
                () -> new BlobCollector(Spaces.SPACE, broken, 1).collect(pipeline, System.currentTimeMillis() + 10_000));
        assertThrows(IOException.class, slow::close);
        assertFalse(files.exists(at("f")));
    }

    @Test
    void aProcessThatWritesLargeFilesLooksForOrphansOnceAnHour() throws IOException {
        // The hour of this test's own pipeline began when its files were opened, by another clock.
        String unseen = Spaces.newPipeline();
        AtomicLong nowMs = new AtomicLong(System.currentTimeMillis() + 10_000);
        Queue<Runnable> looks = new ArrayDeque<>();
        BlobCollector collector = new BlobCollector(Spaces.SPACE, store, 1, nowMs::get, looks::add);
        Blobs writer = new Blobs(Spaces.SPACE, store, collector);
        Blobs.Intent orphan = writer.announce(unseen, "left-by-a-crash");
        assertEquals(1, looks.size(), "the first file begins a look");
        nowMs.addAndGet(BlobCollector.PAUSE_MS - 1);
        writer.announce(unseen, "within-the-hour");
        assertEquals(1, looks.size(), "no second look within the hour");
        nowMs.addAndGet(1);
        writer.announce(unseen, "an-hour-later");
        assertEquals(2, looks.size(), "an hour later there is a second look");
        assertTrue(Spaces.SPACE.get(orphan.key()).isPresent(), "no writer removes orphans by itself");
        looks.forEach(Runnable::run);
        assertTrue(Spaces.SPACE.get(orphan.key()).isEmpty(), "the orphan is removed");
    }

    @Test
    void orphansAreRemovedInAThreadThatEndsWithTheProcess() throws Exception {
        AtomicReference<Thread> remover = new AtomicReference<>();
        CountDownLatch isRemoved = new CountDownLatch(1);
        BlobStore watched = storeThatDeletes(uri -> {
            remover.set(Thread.currentThread());
            isRemoved.countDown();
            return store.delete(uri);
        });
        String unseen = Spaces.newPipeline();
        new Blobs(Spaces.SPACE, watched, null).announce(unseen, "left-by-a-crash");
        new BlobCollector(Spaces.SPACE, watched, -1).startIfDue(unseen);
        assertTrue(isRemoved.await(WAIT_S, TimeUnit.SECONDS), "the orphan is removed");
        assertTrue(remover.get() != Thread.currentThread() && remover.get().isDaemon(), "not by the writer's thread");
    }

    @Test
    void damageIsFoundAndNeverHandedOut() throws IOException {
        write(files, at("f"), bytes(LARGE), false);
        java.nio.file.Path blob = blobs().get(0);
        byte[] spoilt = Files.readAllBytes(blob);
        spoilt[700_000] ^= 1;
        Files.write(blob, spoilt);
        try (FSDataInputStream in = files.open(at("f"))) {
            byte[] some = new byte[1000];
            in.readFully(0, some);
            assertArrayEquals(Arrays.copyOf(bytes(LARGE), 1000), some);
            String told = assertThrows(IOException.class, () -> in.readFully(699_000, some)).getMessage();
            assertTrue(told.contains("checksum") && told.contains(at("f").toString()), told);
        }
        Files.write(blob, Arrays.copyOf(bytes(LARGE), LARGE - 1));
        assertThrows(IOException.class, () -> read(files, at("f")));
        Files.delete(blob);
        IOException missing = assertThrows(IOException.class, () -> files.open(at("f")));
        assertFalse(missing instanceof FileNotFoundException, "the file is there, its content is not");
    }

    @Test
    void aBaseThatIsNoPlaceForBlobsIsRefused() {
        conf.set("raftlake.fs.base.uri", "raftlake://" + pipeline + "/blobs");
        String told = assertThrows(IOException.class, () -> Spaces.fileSystem(conf, pipeline)).getMessage();
        assertTrue(told.contains("raftlake.fs.base.uri"), told);
        conf.set("raftlake.fs.base.uri", "nosuchscheme://x/");
        assertThrows(IOException.class, () -> Spaces.fileSystem(conf, pipeline));
    }

    @Test
    void blobsOfAnotherPlaceAreLeftAlone() throws IOException {
        java.nio.file.Path foreign = Files.createTempFile(directory, "foreign", "");
        assertFalse(store.delete(foreign.toUri().toString()));
        assertFalse(store.delete(directory.getParent().resolve("x").toUri().toString()));
        assertTrue(Files.exists(foreign));
        KeySpace space = Spaces.SPACE;
        assertEquals(store.uriOf("p", "x"), new Path(new Path(directory.toUri().toString(), "p"), "x").toString());
        assertEquals(0, new BlobCollector(space, store, 0).collect(pipeline, 0));
    }
}
