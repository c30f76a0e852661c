package io.raftlake.spark.state;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.fs.QuorumFiles;
import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.kit.StateQuery;
import io.raftlake.spark.kit.StateQuery.Kind;
import io.raftlake.spark.kit.StateQuery.Store;
import io.raftlake.spark.kit.StateQuery.Version;
import io.raftlake.spark.kit.WatchedLogs;
import io.raftlake.spark.kit.WatchedLogs.Asked;
import io.raftlake.spark.log.Logs;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import scala.Option;

/** How the changelog of a store is found, and what is read of it before a load asks. */
@Timeout(60)
class StoreLogTest {
    private static final int WAIT_S = 30;

    @TempDir
    java.nio.file.Path directory;

    private StateQuery query() throws IOException {
        return StateQuery.start(Kind.QUORUM, directory);
    }

    private static StoreLog log(StateQuery query, LogSource source) {
        return new StoreLog(query.id(0, StateQuery.DEFAULT), source, query.conf);
    }

    private static Version write(StateQuery query) {
        try (Store store = query.open()) {
            return store.put(store.put(Version.NONE, 1, "a"), 2, "b");
        }
    }

    @Test
    void whoAsksBehindALookAheadAsksTheQuorumNothing() throws IOException {
        StateQuery query = query();
        write(query);
        WatchedLogs watched = new WatchedLogs(Spaces.LOGS);
        StoreLog log = log(query, (fileSystem, conf) -> watched.logs());
        log.openAhead();
        Changelog found = log.find().orElseThrow();
        assertFalse(watched.asked().stream().anyMatch(Asked::isHere), watched.asked().toString());
        assertSame(found, log.find().orElseThrow());
    }

    @Test
    void withoutALookAheadTheOneWhoAsksLooks() throws IOException {
        StateQuery query = query();
        write(query);
        assertTrue(log(query, (fileSystem, conf) -> Spaces.LOGS).find().isPresent());
    }

    @Test
    void aLookAheadThatFailedIsMadeAgainByTheOneWhoAsks() throws IOException {
        StateQuery query = query();
        write(query);
        Thread here = Thread.currentThread();
        AtomicInteger failed = new AtomicInteger();
        StoreLog log = log(query, (fileSystem, conf) -> {
            if (Thread.currentThread() != here) {
                failed.incrementAndGet();
                throw new IOException("nobody is there");
            }
            return Spaces.LOGS;
        });
        log.openAhead();
        assertTrue(log.find().isPresent());
        assertEquals(1, failed.get());
    }

    @Test
    void whatALookAheadDidNotFindIsFoundWhereItWasMadeSince() throws Exception {
        StateQuery query = query();
        CountDownLatch looked = new CountDownLatch(1);
        StoreLog log = log(query, (fileSystem, conf) -> {
            looked.countDown();
            return Spaces.LOGS;
        });
        log.openAhead();
        assertTrue(looked.await(WAIT_S, TimeUnit.SECONDS));
        write(query);
        assertTrue(log.find().isPresent());
    }

    @Test
    void whereNoChangelogIsNoneIsFound() throws IOException {
        StoreLog log = log(query(), (fileSystem, conf) -> Spaces.LOGS);
        log.openAhead();
        assertEquals(Optional.empty(), log.find());
    }

    @Test
    void whoIsInterruptedWaitsNoLongerForALookAhead() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        StoreLog log = log(query(), (fileSystem, conf) -> {
            begun.countDown();
            try {
                new CountDownLatch(1).await(WAIT_S, TimeUnit.SECONDS);
            } catch (InterruptedException interrupted) {
                throw new InterruptedIOException("held up");
            }
            return Spaces.LOGS;
        });
        log.openAhead();
        assertTrue(begun.await(WAIT_S, TimeUnit.SECONDS));
        Thread.currentThread().interrupt();
        assertThrows(InterruptedIOException.class, log::find);
        assertTrue(Thread.interrupted());
    }

    /** The look ahead needs the monitor of the log: a commit that waits for the look must not hold it. */
    @Test
    void aCommitThatWaitsForALookAheadHoldsNothingThatTheLookNeeds() throws Exception {
        StateQuery query = query();
        StoreLog log = log(query, (fileSystem, conf) -> Spaces.LOGS);
        FutureTask<Changelog> commit = new FutureTask<>(log::ensure);
        Thread thread = new Thread(commit);
        synchronized (log) {
            log.openAhead();
            thread.start();
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S / 3);
            while (thread.getState() != Thread.State.WAITING && System.nanoTime() < until) {
                Thread.sleep(1);
            }
            assertEquals(Thread.State.WAITING, thread.getState());
        }
        assertSame(commit.get(WAIT_S, TimeUnit.SECONDS), log.ensure());
    }

    /** The product's class, over logs that are watched. */
    private static final class Watched extends StateQuery.OfMemory {
        private final WatchedLogs watched;

        private Watched(WatchedLogs watched) {
            this.watched = watched;
        }

        @Override
        protected Logs logs(RaftlakeFileSystem fileSystem, Configuration conf) {
            return watched.logs();
        }
    }

    @Test
    void aStoreThatIsOpenedIsReadAheadOfItsLoad() throws Exception {
        StateQuery query = query();
        Version two = write(query);
        CountDownLatch read = new CountDownLatch(2);
        WatchedLogs watched = new WatchedLogs(Spaces.LOGS, call -> {
            if (!call.isHere() && call.method().equals("fetch")) {
                read.countDown();
            }
        });
        Watched provider = new Watched(watched);
        provider.init(query.id(0, StateQuery.DEFAULT), StateQuery.KEY, StateQuery.VALUE, StateQuery.prefixed(), false,
                query.storeConf(), query.conf, false, Option.empty());
        try {
            assertTrue(read.await(WAIT_S, TimeUnit.SECONDS), "the trailer, then the changes");
            ReadStateStore store = provider.getReadStore(two.number(), two.uniqueId());
            assertEquals(Map.of("a", 1, "b", 2), StateQuery.all(store, StateQuery.DEFAULT));
            store.release();
        } finally {
            provider.close();
        }
    }

    /** Bytes that may still be read ahead in this process. */
    private static long room() throws ReflectiveOperationException {
        Field room = QuorumFiles.class.getDeclaredField("AHEAD_ROOM");
        room.setAccessible(true);
        return ((AtomicLong) room.get(null)).get();
    }

    private static boolean isLookingAhead() {
        return Thread.getAllStackTraces().values().stream().flatMap(Arrays::stream)
                .anyMatch(frame -> frame.getClassName().equals(StoreLog.class.getName()));
    }

    private static void awaitLooks() throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (isLookingAhead() && System.nanoTime() < until) {
            Thread.sleep(1);
        }
        assertFalse(isLookingAhead());
    }

    @Test
    void aStoreThatCannotBeOpenedKeepsNothingThatWasReadAhead() throws Exception {
        StateQuery query = query().set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1");
        try (Store store = query.open()) {
            Version one = store.put(Version.NONE, 1, "a");
            store.put(one, 2, "b");
            store.provider().doMaintenance();
        }
        CountDownLatch looked = new CountDownLatch(1);
        WatchedLogs watched = new WatchedLogs(Spaces.LOGS, call -> looked.countDown());
        long before = room();
        StateStoreConf confOfNone = null;
        assertThrows(RuntimeException.class, () -> new Watched(watched).init(query.id(0, StateQuery.DEFAULT), StateQuery.KEY,
                StateQuery.VALUE, StateQuery.prefixed(), false, confOfNone, query.conf, true, Option.empty()));
        assertTrue(looked.await(WAIT_S, TimeUnit.SECONDS));
        awaitLooks();
        assertEquals(before, room());
    }
}
