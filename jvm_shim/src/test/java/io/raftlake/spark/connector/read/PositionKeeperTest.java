package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedMap;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Tag("memory")
@Timeout(30)
class PositionKeeperTest {
    private static final long INTERVAL_MS = 5_000;

    private final List<String> written = new ArrayList<>();
    private long nowMs = 100;
    private long wallMs = 1_000;
    private int failures;

    private final PositionKeeper keeper =
            new PositionKeeper(() -> this::write, INTERVAL_MS, () -> nowMs, () -> wallMs);

    private boolean write(SortedMap<TopicPartition, Long> offsets, long batchMs, long seenMs) throws IOException {
        if (failures > 0) {
            failures--;
            throw new QuorumUnavailableException("away");
        }
        written.add(OffsetJson.of(offsets) + " " + batchMs + " " + seenMs);
        return true;
    }

    private static SortedMap<TopicPartition, Long> at(long offset) {
        return OffsetJson.parse("{\"t\":{\"0\":" + offset + "}}");
    }

    private void finished(long offset) {
        wallMs += 10;
        keeper.finished(at(offset));
    }

    @Test
    void aPositionThatChangesIsWrittenOnceInAnInterval() {
        assertNull(keeper.dueMs());
        finished(1);
        assertEquals(0L, keeper.dueMs());
        keeper.write();
        assertNull(keeper.dueMs());
        finished(2);
        finished(3);
        assertEquals(INTERVAL_MS, keeper.dueMs());
        nowMs += INTERVAL_MS - 1;
        assertEquals(1L, keeper.dueMs());
        nowMs += 1;
        assertEquals(0L, keeper.dueMs());
        keeper.write();
        assertEquals(List.of("{\"t\":{\"0\":1}} 0 1010", "{\"t\":{\"0\":3}} 1030 1030"), written);
        assertNull(keeper.dueMs());
    }

    @Test
    void aPositionThatStaysIsWrittenOnceAMinuteWhileSparkAsks() {
        finished(1);
        keeper.write();
        nowMs += 10 * PositionKeeper.REFRESH_MS;
        assertNull(keeper.dueMs(), "Spark asks no more");
        nowMs -= 10 * PositionKeeper.REFRESH_MS;
        finished(1);
        assertEquals(PositionKeeper.REFRESH_MS, keeper.dueMs());
        finished(2);
        assertEquals(INTERVAL_MS, keeper.dueMs());
    }

    @Test
    void whatFailsIsTriedAgainAfterAnInterval() {
        failures = 2;
        finished(1);
        keeper.write();
        assertEquals(INTERVAL_MS, keeper.dueMs());
        keeper.write();
        finished(2);
        nowMs += INTERVAL_MS;
        assertEquals(0L, keeper.dueMs());
        keeper.write();
        assertEquals(List.of("{\"t\":{\"0\":2}} 1020 1020"), written);
    }

    @Test
    void aLargePositionIsWrittenLessOften() {
        StringBuilder many = new StringBuilder("{\"t\":{\"0\":1");
        for (int partition = 1; partition < 4096; partition++) {
            many.append(",\"").append(partition).append("\":1");
        }
        keeper.finished(OffsetJson.parse(many.append("}}").toString()));
        keeper.write();
        keeper.finished(at(1));
        assertEquals(INTERVAL_MS, keeper.dueMs());
        keeper.finished(OffsetJson.parse(many.toString().replace("\"0\":1,", "\"0\":2,")));
        assertEquals(4 * INTERVAL_MS, keeper.dueMs());
    }

    /** While a write is under way another batch ends and the query stops: the last position is the one that stands. */
    @Test
    void theLastPositionIsWrittenAtTheEnd() throws InterruptedException {
        CountDownLatch began = new CountDownLatch(1);
        CountDownLatch mayEnd = new CountDownLatch(1);
        List<String> told = new ArrayList<>();
        PositionKeeper.Writer slow = (offsets, batchMs, seenMs) -> {
            began.countDown();
            try {
                mayEnd.await();
            } catch (InterruptedException interrupted) {
                throw new IOException(interrupted);
            }
            told.add(OffsetJson.of(offsets));
            return true;
        };
        PositionKeeper running = new PositionKeeper(() -> slow, INTERVAL_MS);
        running.finished(at(1));
        running.start();
        began.await();
        running.finished(at(2));
        new Thread(() -> {
            try {
                Thread.sleep(50);
            } catch (InterruptedException nobodyDoes) {
                return;
            }
            mayEnd.countDown();
        }).start();
        running.close();
        assertEquals(List.of("{\"t\":{\"0\":1}}", "{\"t\":{\"0\":2}}"), told);
    }

    @Test
    void anEndWaitsForNoOutage() throws InterruptedException {
        CountDownLatch forever = new CountDownLatch(1);
        PositionKeeper.Writer stuck = (offsets, batchMs, seenMs) -> {
            try {
                forever.await();
            } catch (InterruptedException interrupted) {
                throw new IOException(interrupted);
            }
            return true;
        };
        PositionKeeper running = new PositionKeeper(() -> stuck, INTERVAL_MS);
        running.finished(at(1));
        running.start();
        long beganNs = System.nanoTime();
        // As Spark stops the thread of a query.
        Thread.currentThread().interrupt();
        running.close();
        assertTrue(Thread.interrupted(), "the interrupt is kept");
        long tookMs = (System.nanoTime() - beganNs) / 1_000_000;
        assertTrue(tookMs < 2 * PositionKeeper.LAST_MS_MAX, tookMs + " ms");
        forever.countDown();
    }
}
