package io.raftlake.spark.connector.write;

import io.raftlake.spark.connector.write.SinkKeys.Committed;
import io.raftlake.spark.connector.write.SinkKeys.Driver;
import io.raftlake.spark.connector.write.SinkKeys.Owner;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Which batches of an app are visible, and who may make the next one so.
 *
 * <p>{@link #enter} makes a run the owner of its app, or refuses a run that was replaced. {@link #commit} is one command: all or
 * nothing of a batch becomes visible, if the owner and the last batch are those that {@code enter} found. After an unknown outcome
 * the same command is sent again: it compares the version of the batch, so it takes effect once.
 *
 * <p>The run that comes last owns the app. A run is told from one that was replaced by the names in the owner's key, and by no
 * clock.
 */
final class Ledger {
    private static final Logger LOG = LoggerFactory.getLogger(Ledger.class);
    private static final int LOOKS_MAX = 100;

    private final KeySpace keys;
    private final Leftovers leftovers;
    private final LongSupplier nowMs;

    /** What stands in both keys of an app; versions are 0 where there is none. */
    private record Look(Owner owner, long ownerVersion, Committed last, long batchVersion) {}

    /** {@code nowMs}: ms since 1970, for what people read. */
    Ledger(KeySpace keys, Leftovers leftovers, LongSupplier nowMs) {
        this.keys = keys;
        this.leftovers = leftovers;
        this.nowMs = nowMs;
    }

    /** The standing of a run that owns the app from now on. {@link SinkFencedException} for a run that was replaced. */
    Standing enter(String app, String run, String query, Driver driver) throws IOException {
        for (int looks = 0; looks < LOOKS_MAX; looks++) {
            Look found = look(app);
            if (found.ownerVersion() != KeySpace.ABSENT && found.owner().run().equals(run)) {
                return new Standing(app, run, found.owner().generation(), found.ownerVersion(), found.last().batch(),
                        found.batchVersion(), found.last().isReplanned());
            }
            if (found.ownerVersion() != KeySpace.ABSENT && found.owner().before().contains(run)) {
                throw SinkFencedException.before(app, run, found.owner());
            }
            takeOver(app, found, found.owner().followedBy(run, query, driver, nowMs.getAsLong()));
        }
        throw new SinkFailedException("other runs took the sink of " + app + " " + LOOKS_MAX + " times while run " + run
                + " tried to");
    }

    private void takeOver(String app, Look found, Owner mine) throws IOException {
        String key = SinkKeys.ownerKey(app);
        byte[] value = mine.encode();
        try {
            TxnResult result = keys.commit(new Txn().compare(key, found.ownerVersion()).put(key, value),
                    Witness.put(key, value));
            if (result.succeeded() && result.version() != 0 && found.ownerVersion() != KeySpace.ABSENT) {
                LOG.info("sink {}: run {} takes over from {}", app, mine.run(), found.owner().describe());
                leftovers.sweep(SinkKeys.appTransactions(app), key, result.version(), List.of());
            }
        } catch (UnknownOutcomeException unknown) {
            LOG.info("sink {}: {}", app, unknown.getMessage());
        }
    }

    /**
     * What became of a commit. {@code isNews}: the batch was not visible before. {@code following}: how the run stands behind it;
     * null where that has to be asked.
     */
    record Outcome(boolean isNews, Standing following) {}

    /** Makes a batch visible, unless it is. {@link SinkFencedException}: a newer run owns the app. */
    Outcome commit(Standing standing, Committed batch, Collection<Ending> endings) throws IOException {
        requireRoom(batch.batch(), endings.size(), SinkKeys.TASKS_MAX);
        Txn txn = new Txn();
        addTo(txn, standing, batch, endings);
        TxnResult result = keys.commit(txn, Witness.put(SinkKeys.batchKey(standing.app()), batch.encode()));
        if (result.succeeded()) {
            return new Outcome(true, result.version() == 0 ? null : standing.behind(batch.batch(), result.version()));
        }
        return new Outcome(explain(standing, batch, result), null);
    }

    /**
     * Notes that Spark has planned the last batch anew: a run in another mode would leave its rows out otherwise. Nothing where
     * the app has another owner, or another batch, by now.
     */
    void noteReplanned(Standing standing) throws IOException {
        Look found = look(standing.app());
        if (found.last().batch() < 0 || found.last().isReplanned()) {
            return;
        }
        String key = SinkKeys.batchKey(standing.app());
        byte[] value = found.last().replanned().encode();
        Txn txn = new Txn().compare(SinkKeys.ownerKey(standing.app()), standing.ownerVersion())
                .compare(key, standing.batchVersion())
                .put(key, value);
        keys.commit(txn, Witness.put(key, value));
    }

    static void requireRoom(long batch, int tasks, int tasksMax) {
        if (tasks > tasksMax) {
            throw new SinkFailedException("batch " + batch + " has rows of " + tasks + " tasks, and one commit takes " + tasksMax
                    + ": call coalesce(" + tasksMax + ") or less before the write");
        }
    }

    /** Adds to a command what makes a batch visible, and the compares that let this run alone do so, once. */
    static void addTo(Txn txn, Standing standing, Committed batch, Collection<Ending> endings) {
        String key = SinkKeys.batchKey(standing.app());
        txn.compare(SinkKeys.ownerKey(standing.app()), standing.ownerVersion()).compare(key, standing.batchVersion());
        endings.forEach(ending -> txn.endTxn(ending.producerId(), ending.epoch(), true));
        txn.put(key, batch.encode());
    }

    /** True where the command has taken effect all the same, false where its batch was visible before. Else an exception. */
    boolean explain(Standing standing, Committed batch, TxnResult result) throws IOException {
        Look found = look(standing.app());
        if (found.last().equals(batch)) {
            return true;
        }
        if (found.ownerVersion() != standing.ownerVersion()) {
            String owner = found.ownerVersion() == KeySpace.ABSENT
                    ? "nobody: its owner key was deleted" : found.owner().describe();
            throw SinkFencedException.at(batch.batch(), standing.app(), standing.run(), owner);
        }
        if (found.last().batch() >= batch.batch()) {
            return false;
        }
        if (!result.refused().isEmpty()) {
            throw new SinkFailedException(whyRefused("the commit of batch " + batch.batch(), result.refused()));
        }
        throw new SinkFailedException("the commit of batch " + batch.batch() + " of " + standing.app() + ": somebody changed "
                + SinkKeys.batchKey(standing.app()) + " while its tasks ran. Start the query again");
    }

    static String whyRefused(String what, Map<Long, String> refused) {
        return what + ": the transactions of " + refused.size() + " tasks were aborted before ("
                + refused.values().iterator().next() + "). Their time limit is 'kafka.transaction.timeout.ms': it begins with a "
                + "task's first row and has to last until the commit";
    }

    private Look look(String app) throws IOException {
        Owner owner = Owner.decode(null);
        Committed last = Committed.decode(null);
        long ownerVersion = KeySpace.ABSENT;
        long batchVersion = KeySpace.ABSENT;
        for (Entry entry : keys.list(ListRequest.deep(SinkKeys.appPrefix(app), true)).entries()) {
            if (entry.key().equals(SinkKeys.ownerKey(app))) {
                owner = Owner.decode(entry.value());
                ownerVersion = entry.version();
            } else if (entry.key().equals(SinkKeys.batchKey(app))) {
                last = Committed.decode(entry.value());
                batchVersion = entry.version();
            }
        }
        return new Look(owner, ownerVersion, last, batchVersion);
    }
}
