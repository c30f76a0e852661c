package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.fs.FilesAhead.Wanted;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.MemoryLogs;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Files that are read before they are opened. A file that is deleted meanwhile tells where its content came from. */
@Tag("memory")
@Timeout(60)
class ReadAheadTest {
    private static final int LARGE = 2 * FileWriter.CHUNK_BYTES + 1;
    private static final int WAIT_S = 30;

    private QuorumFiles files;

    @BeforeEach
    void open() throws IOException {
        Configuration conf = new Configuration(false);
        conf.set("raftlake.http.servers", "h:1");
        files = QuorumFiles.open("p", FsSettings.of(conf), new MemoryKeySpace(), new MemoryLogs(), conf,
                new FileSystem.Statistics("raftlake"));
    }

    private static Path at(String name) {
        return new Path("raftlake://p/" + name);
    }

    private void write(String name, int size) throws IOException {
        try (OutputStream out = files.create(at(name), true, true)) {
            out.write(bytes(size));
        }
    }

    private static byte[] read(QuorumFiles from, String name) throws IOException {
        try (InputStream in = from.open(at(name))) {
            return in.readAllBytes();
        }
    }

    /** Waits until the last of several that are read in turn is there. */
    private void delete(CountDownLatch read, String... names) throws Exception {
        assertTrue(read.await(WAIT_S, TimeUnit.SECONDS));
        for (String name : names) {
            assertTrue(files.delete(at(name), false));
        }
    }

    // --- what a reader begins ----------------------------------------------------------------------------------------

    @Test
    void whatIsReadAheadIsHandedOutOnce() throws Exception {
        for (int size : List.of(0, 100, LARGE)) {
            write("f", size);
            CountDownLatch seen = new CountDownLatch(1);
            files.readAhead().begin(at("f"), LARGE, content -> {
                assertArrayEquals(bytes(size), content);
                seen.countDown();
            });
            delete(seen, "f");
            assertArrayEquals(bytes(size), read(files, "f"));
            assertThrows(FileNotFoundException.class, () -> read(files, "f"));
        }
    }

    @Test
    void aWriterOfTheSameFilesHasItToo() throws Exception {
        write("f", 100);
        CountDownLatch seen = new CountDownLatch(1);
        files.readAhead().begin(at("f"), LARGE, content -> seen.countDown());
        delete(seen, "f");
        assertArrayEquals(bytes(100), read(files.fenced(Fence.NONE), "f"));
    }

    @Test
    void aFileThatIsTooLargeIsReadWhenItIsOpened() throws Exception {
        for (int bound : List.of(LARGE - 1, LARGE)) {
            write("f", LARGE);
            AtomicInteger seen = new AtomicInteger();
            files.readAhead().begin(at("f"), bound, content -> seen.incrementAndGet());
            assertArrayEquals(bytes(LARGE), read(files, "f"));
            assertEquals(bound == LARGE ? 1 : 0, seen.get());
        }
    }

    @Test
    void whatOneFileNamesIsThereWhenThatFileIsHandedOut() throws Exception {
        write("list", 10);
        write("a", LARGE);
        write("b", 20);
        Map<Path, Long> lengths = new LinkedHashMap<>();
        lengths.put(at("a"), (long) LARGE);
        lengths.put(at("b"), 20L);
        ReadAhead ahead = files.readAhead();
        ahead.begin(at("list"), 100, content -> ahead.begin(lengths));
        assertArrayEquals(bytes(10), read(files, "list"));
        assertArrayEquals(bytes(20), read(files, "b"));
        // They are read in turn: the first one was read before the second.
        files.delete(at("a"), false);
        assertArrayEquals(bytes(LARGE), read(files, "a"));
    }

    @Test
    void behindItsEndAReaderHasNothingAndBeginsNothing() throws Exception {
        write("f", 100);
        ReadAhead ahead = files.readAhead();
        ahead.begin(at("f"), LARGE, content -> {});
        ahead.close();
        files.delete(at("f"), false);
        assertThrows(FileNotFoundException.class, () -> read(files, "f"));
        write("g", 100);
        AtomicInteger begun = new AtomicInteger();
        ahead.begin(at("g"), LARGE, content -> begun.incrementAndGet());
        assertArrayEquals(bytes(100), read(files, "g"));
        assertEquals(0, begun.get());
    }

    @Test
    void aFileThatIsNotThereIsSaidToBeWhenItIsOpened() throws Exception {
        files.readAhead().begin(at("f"), LARGE, content -> {});
        assertThrows(FileNotFoundException.class, () -> read(files, "f"));
        files.readAhead().begin(at("f"), LARGE, content -> {});
        write("f", 100);
        // Before or behind the write: in either case it opens.
        assertArrayEquals(bytes(100), read(files, "f"));
    }

    // --- the room ----------------------------------------------------------------------------------------------------

    private static Wanted wanted(String name, int size, List<String> order) throws IOException {
        return new Wanted(Location.of("p", "/" + name), size, () -> {
            synchronized (order) {
                order.add(name);
            }
            return bytes(size);
        });
    }

    private static Location location(String name) throws IOException {
        return Location.of("p", "/" + name);
    }

    @Test
    void filesAreReadInTheirOrderAsFarAsThereIsRoom() throws Exception {
        AtomicLong room = new AtomicLong(300);
        FilesAhead ahead = new FilesAhead(room);
        List<String> order = new ArrayList<>();
        List<Wanted> all = List.of(wanted("a", 100, order), wanted("b", 200, order), wanted("c", 1, order));
        assertEquals(List.of(location("a"), location("b")), ahead.begin(all));
        assertEquals(0, room.get());
        assertArrayEquals(bytes(200), ahead.take(location("b")));
        assertEquals(200, room.get());
        assertNull(ahead.take(location("b")));
        assertNull(ahead.take(location("c")));
        assertEquals(200, room.get());
        ahead.forget(location("a"));
        ahead.forget(location("a"));
        assertEquals(300, room.get());
        assertNull(ahead.take(location("a")));
        assertEquals(List.of("a", "b"), order);
    }

    @Test
    void oneRoomIsForAll() throws Exception {
        AtomicLong room = new AtomicLong(150);
        List<String> order = new ArrayList<>();
        assertEquals(1, new FilesAhead(room).begin(List.of(wanted("a", 100, order))).size());
        FilesAhead other = new FilesAhead(room);
        assertEquals(0, other.begin(List.of(wanted("b", 100, order))).size());
        assertEquals(1, other.begin(List.of(wanted("b", 50, order))).size());
    }

    @Test
    void aFileThatIsReadAlreadyIsNotReadAgain() throws Exception {
        AtomicLong room = new AtomicLong(300);
        FilesAhead ahead = new FilesAhead(room);
        List<String> order = new ArrayList<>();
        ahead.begin(List.of(wanted("a", 100, order)));
        assertEquals(List.of(location("b")), ahead.begin(List.of(wanted("a", 100, order), wanted("b", 100, order))));
        assertArrayEquals(bytes(100), ahead.take(location("a")));
        assertArrayEquals(bytes(100), ahead.take(location("b")));
        assertEquals(300, room.get());
        assertEquals(2, order.size());
    }

    @Test
    void whatFailsGivesItsRoomBack() throws Exception {
        AtomicLong room = new AtomicLong(300);
        FilesAhead ahead = new FilesAhead(room);
        ahead.begin(List.of(
                new Wanted(location("a"), 100, () -> {
                    throw new IOException("nobody is there");
                }),
                new Wanted(location("b"), 100, () -> {
                    throw new IllegalStateException("a bug");
                }),
                wanted("c", 100, new ArrayList<>())));
        assertNull(ahead.take(location("a")));
        assertNull(ahead.take(location("b")));
        assertArrayEquals(bytes(100), ahead.take(location("c")));
        assertEquals(300, room.get());
    }

    @Test
    void whoIsInterruptedWaitsNoLongerAndWhatIsForgottenEnds() throws Exception {
        AtomicLong room = new AtomicLong(300);
        FilesAhead ahead = new FilesAhead(room);
        for (boolean isForgotten : List.of(false, true)) {
            CountDownLatch begun = new CountDownLatch(1);
            CountDownLatch ended = new CountDownLatch(1);
            ahead.begin(List.of(new Wanted(location("a"), 100, () -> {
                begun.countDown();
                try {
                    new CountDownLatch(1).await();
                } catch (InterruptedException interrupted) {
                    ended.countDown();
                }
                return new byte[0];
            })));
            assertTrue(begun.await(WAIT_S, TimeUnit.SECONDS));
            if (isForgotten) {
                ahead.forget(location("a"));
            } else {
                Thread.currentThread().interrupt();
                assertThrows(InterruptedIOException.class, () -> ahead.take(location("a")));
                assertTrue(Thread.interrupted());
            }
            assertTrue(ended.await(WAIT_S, TimeUnit.SECONDS));
            assertEquals(300, room.get());
        }
    }
}
