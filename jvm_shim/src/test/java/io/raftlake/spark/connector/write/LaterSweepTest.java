package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Sweeps behind batches, with a clock and a thread of the test's own. */
@Timeout(30)
final class LaterSweepTest {
    private final List<Runnable> waiting = new ArrayList<>();
    private long nowMs = 5_000;
    private int sweeps;
    private final LaterSweep later = new LaterSweep(() -> sweeps++, (command, afterMs) -> {
        assertEquals(LaterSweep.IDLE_MS, afterMs);
        waiting.add(command);
    }, () -> nowMs);

    private void idle() {
        waiting.remove(0).run();
    }

    @Test
    void aQueryThatIsIdleForAMomentSweepsOnceBehindItsBatch() throws InterruptedException {
        later.beforeBatch();
        later.behindBatch();
        assertEquals(0, sweeps);
        idle();
        assertEquals(1, sweeps);
        nowMs += 10 * LaterSweep.AGE_MS_MAX;
        later.beforeBatch();
        later.behindBatch();
        idle();
        assertEquals(2, sweeps);
    }

    @Test
    void batchesWithoutAPauseSweepNowAndThen() throws InterruptedException {
        for (int batch = 1; batch <= 21; batch++) {
            later.behindBatch();
            nowMs += LaterSweep.AGE_MS_MAX / 10;
            later.beforeBatch();
            assertEquals(batch / 10, sweeps, "behind batch " + batch);
        }
        // Their threads come too late.
        while (!waiting.isEmpty()) {
            idle();
        }
        assertEquals(2, sweeps);
    }

    @Test
    void noBatchBeginsBesideASweepAndNoSweepAmidABatch() throws InterruptedException {
        CountDownLatch hasBegun = new CountDownLatch(1);
        CountDownLatch mayEnd = new CountDownLatch(1);
        AtomicBoolean isOver = new AtomicBoolean();
        LaterSweep slow = new LaterSweep(() -> {
            hasBegun.countDown();
            try {
                mayEnd.await();
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
            isOver.set(true);
        }, (command, afterMs) -> waiting.add(command), () -> nowMs);
        slow.behindBatch();
        Thread sweeping = new Thread(this::idle);
        sweeping.start();
        hasBegun.await();
        boolean[] wasOver = new boolean[1];
        Thread batch = new Thread(() -> {
            try {
                slow.beforeBatch();
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
            wasOver[0] = isOver.get();
        });
        batch.start();
        assertFalse(isOver.get());
        mayEnd.countDown();
        batch.join();
        assertEquals(true, wasOver[0]);
        slow.behindBatch();
        slow.beforeBatch();
        isOver.set(false);
        idle();
        assertFalse(isOver.get(), "a batch has begun meanwhile");
    }

    @Test
    void aSweepThatFailedKeepsNoBatchWaiting() throws InterruptedException {
        LaterSweep failing = new LaterSweep(() -> {
            throw new IllegalStateException("no quorum");
        }, (command, afterMs) -> waiting.add(command), () -> nowMs);
        failing.behindBatch();
        assertThrows(IllegalStateException.class, this::idle);
        failing.beforeBatch();
    }
}
