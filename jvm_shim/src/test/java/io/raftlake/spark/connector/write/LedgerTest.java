package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.write.SinkKeys.Committed;
import io.raftlake.spark.connector.write.SinkKeys.Driver;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.log.Transactions.Open;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Txn.Op.EndTxn;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Who may commit batches of an app, and what a commit does, on keys in memory. */
@Tag("memory")
class LedgerTest {
    private static final Driver DRIVER = new Driver("here", 7);
    private static final Ending ENDING = new Ending(100, (short) 3);

    private final MemoryKeySpace keys = new MemoryKeySpace();
    private final Coordinator coordinator = new Coordinator();
    private final Ledger ledger = new Ledger(keys, new Leftovers(keys, coordinator), () -> 1_000);

    /** Open transactions, as a test says. */
    private static final class Coordinator implements OpenTransactions {
        private final List<Open> open = new ArrayList<>();

        @Override
        public List<Open> open(String prefix, long timeoutMs) {
            return open.stream().filter(each -> each.transactionalId().startsWith(prefix)).toList();
        }

        @Override
        public boolean settle(Collection<String> transactionalIds, long timeoutMs) {
            return true;
        }
    }

    private static Committed batch(long number, String run) {
        return new Committed(number, run, 5, 1, 2_000, Map.of("t", 5L));
    }

    @Test
    void theFirstRunOwnsItsApp() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        assertEquals(-1, standing.lastBatch());
        assertEquals(0, standing.batchVersion());
        assertEquals(1, standing.generation());
        assertEquals(standing, ledger.enter("app", "run1", "q", DRIVER));
    }

    @Test
    void aCommitEndsTheTransactionsAndPutsTheBatch() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        assertTrue(ledger.commit(standing, batch(0, "run1"), List.of(ENDING)).isNews());
        assertEquals(List.of(new EndTxn(100, (short) 3, true)), keys.ends());
        assertEquals(0, ledger.enter("app", "run1", "q", DRIVER).lastBatch());
    }

    @Test
    void aCommitThatComesOnceMoreChangesNothing() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        assertTrue(ledger.commit(standing, batch(0, "run1"), List.of(ENDING)).isNews());
        assertTrue(ledger.commit(standing, batch(0, "run1"), List.of(ENDING)).isNews(), "its own");
        assertFalse(ledger.commit(standing, batch(0, "another"), List.of(ENDING)).isNews(), "that of another attempt");
        assertEquals(1, keys.ends().size());
    }

    @Test
    void whatACommitLeavesIsWhatTheNextBatchWouldFind() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        for (int number = 0; number < 3; number++) {
            standing = ledger.commit(standing, batch(number, "run1"), List.of()).following();
            assertEquals(ledger.enter("app", "run1", "q", DRIVER), standing);
        }
    }

    @Test
    void aBatchThatSparkHasPlannedAnewIsKnownToLaterRunsUntilTheNextOneIsCommitted() throws IOException {
        Standing first = ledger.enter("app", "run1", "q", DRIVER);
        ledger.noteReplanned(first);
        assertFalse(ledger.enter("app", "run1", "q", DRIVER).isReplanned(), "no batch is visible");
        ledger.commit(first, batch(3, "run1"), List.of());
        Standing second = ledger.enter("app", "run2", "q", DRIVER);
        ledger.noteReplanned(first);
        assertFalse(ledger.enter("app", "run2", "q", DRIVER).isReplanned(), "a run that was replaced notes nothing");
        ledger.noteReplanned(second);
        ledger.noteReplanned(second);
        Standing third = ledger.enter("app", "run3", "q", DRIVER);
        assertTrue(third.isReplanned());
        assertEquals(3, third.lastBatch());
        Standing behind = ledger.commit(third, batch(4, "run3"), List.of()).following();
        assertFalse(behind.isReplanned());
        assertEquals(behind, ledger.enter("app", "run3", "q", DRIVER));
    }

    @Test
    void behindAnUncertainCommitTheNextBatchHasToAsk() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        ledger.commit(standing, batch(0, "run1"), List.of());
        Ledger.Outcome again = ledger.commit(standing, batch(0, "run1"), List.of());
        assertTrue(again.isNews());
        assertNull(again.following(), "its version was not told");
    }

    @Test
    void aRunThatWasReplacedIsToldByWhom() throws IOException {
        Standing old = ledger.enter("app", "run1", "q", DRIVER);
        Standing young = ledger.enter("app", "run2", "q", new Driver("there", 8));
        assertEquals(2, young.generation());
        SinkFencedException entered =
                assertThrows(SinkFencedException.class, () -> ledger.enter("app", "run1", "q", DRIVER));
        SinkFencedException committed =
                assertThrows(SinkFencedException.class, () -> ledger.commit(old, batch(0, "run1"), List.of(ENDING)));
        assertEquals("run run1 no longer owns the sink of app, and nothing of batch 0 became visible. The owner is run run2 on host "
                + "there (process 8, since 1970-01-01T00:00:01Z). The run that wrote last goes on; to go on here instead, start "
                + "the query here again", committed.getMessage());
        assertTrue(entered.getMessage().contains("and nothing became visible. The owner is run run2"), entered.getMessage());
        assertEquals(List.of(), keys.ends());
    }

    @Test
    void whoTakesOverAbortsWhatIsOpen() throws IOException {
        ledger.enter("app", "run1", "q", DRIVER);
        coordinator.open.add(new Open(SinkKeys.appTransactionalId("app", 1, 0, 0), 100, (short) 3));
        coordinator.open.add(new Open(SinkKeys.appTransactionalId("other", 1, 0, 0), 101, (short) 3));
        ledger.enter("app", "run2", "q", DRIVER);
        assertEquals(List.of(new EndTxn(100, (short) 3, false)), keys.ends());
    }

    @Test
    void aSweepLeavesTheTransactionsOfAppsWhoseNamesBeginSo() throws IOException {
        Standing standing = ledger.enter("etl", "run1", "q", DRIVER);
        coordinator.open.add(new Open(SinkKeys.appTransactionalId("etl", 3, 0, 12), 100, (short) 3));
        long foreign = 101;
        for (String app : List.of("etl.daily", "etl.1", "etl.", "etl.1.2")) {
            coordinator.open.add(new Open(SinkKeys.appTransactionalId(app, 3, 0, 12), foreign++, (short) 3));
        }
        new Leftovers(keys, coordinator)
                .sweep(SinkKeys.appTransactions("etl"), SinkKeys.ownerKey("etl"), standing.ownerVersion(), List.of());
        assertEquals(List.of(new EndTxn(100, (short) 3, false)), keys.ends());
    }

    @Test
    void aTransactionThatWasAbortedBeforeFailsTheWholeBatch() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        keys.refuse(100, "aborted by its time limit");
        SinkFailedException error = assertThrows(SinkFailedException.class,
                () -> ledger.commit(standing, batch(0, "run1"), List.of(ENDING, new Ending(101, (short) 0))));
        assertTrue(error.getMessage().startsWith("the commit of batch 0: the transactions of 1 tasks were aborted before (aborted by "
                + "its time limit). Their time limit is 'kafka.transaction.timeout.ms'"), error.getMessage());
        assertEquals(List.of(), keys.ends());
    }

    @Test
    void aSinkThatWasForgottenMeanwhileIsNotWritten() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        keys.commit(new Txn().delete(SinkKeys.ownerKey("app")), space -> false);
        SinkFencedException error =
                assertThrows(SinkFencedException.class, () -> ledger.commit(standing, batch(0, "run1"), List.of()));
        assertTrue(error.getMessage().contains("The owner is nobody: its owner key was deleted"), error.getMessage());
    }

    @Test
    void aBatchOfTooManyTasksSaysWhatToDo() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        List<Ending> many = IntStream.range(0, 1024).mapToObj(number -> new Ending(number, (short) 0)).toList();
        SinkFailedException error =
                assertThrows(SinkFailedException.class, () -> ledger.commit(standing, batch(0, "run1"), many));
        assertTrue(error.getMessage().endsWith("call coalesce(1023) or less before the write"), error.getMessage());
    }

    @Test
    void anAbortLeavesOutWhatHasEndedAndNeedsTheKey() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        Leftovers leftovers = new Leftovers(keys, coordinator);
        keys.refuse(100, "ended");
        String key = SinkKeys.ownerKey("app");
        assertEquals(1, leftovers.abort(List.of(ENDING, new Ending(101, (short) 0)), key, standing.ownerVersion()));
        assertEquals(List.of(new EndTxn(101, (short) 0, false)), keys.ends());
        assertEquals(0, leftovers.abort(List.of(new Ending(102, (short) 0)), key, standing.ownerVersion() + 1));
        assertEquals(1, leftovers.giveUp(List.of(ENDING, new Ending(103, (short) 0))), "by a run that was replaced, too");
        assertEquals(new EndTxn(103, (short) 0, false), keys.ends().get(1));
    }
}
