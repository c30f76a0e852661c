package io.raftlake.spark.checkpoint;

import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.fs.Path;

/**
 * The ends of the batches of one run: a sink of the same process has its rows decided by the transaction that creates {@code
 * commits/N}, the file by which Spark knows that batch N is over.
 *
 * <p>Real-time mode needs that. Spark 4.2 calls the sink's commit there, then writes {@code offsets/N}, then {@code commits/N}. A
 * run that finds no {@code commits/N} removes {@code offsets/N}, and writes batch N anew, with other rows.
 *
 * <p>In other modes the sink's commit decides its rows, and what is left to do then is done beside that file.
 *
 * <p>Invariant: once the sink has said how batch N is decided, no {@code commits/} file comes without that.
 */
public final class EpochEnds {
    /** What the transaction that ends a batch decides beside. */
    public interface Outcome {
        /** Adds the compares and the operations. */
        void addTo(Txn txn) throws IOException;

        /** An exception where these compares or operations were in the way of the transaction. */
        void explain(TxnResult refused) throws IOException;

        /** The transaction has happened. */
        void decided();

        /** The file was given up, or its transaction failed. The error is told already. */
        void failed();
    }

    private record Waiting(long batch, Outcome outcome) {}

    private record Left(long batch, Runnable rest) {}

    private static final String COMMITS = "commits";
    private static final String OFFSETS = "offsets";

    /** A run's checkpoint keeps what is here: nothing is left of runs that are over. */
    private static final Map<String, WeakReference<EpochEnds>> OF_RUNS = new HashMap<>();

    private final Ownership owner;
    private final BatchPlans plans = new BatchPlans();
    private Waiting waiting;
    private Left left;

    private EpochEnds(Ownership owner) {
        this.owner = owner;
    }

    /** Those of a run that owns its checkpoint. */
    static EpochEnds of(Ownership owner, Run run) {
        synchronized (OF_RUNS) {
            OF_RUNS.values().removeIf(reference -> reference.refersTo(null));
            EpochEnds known = get(name(run.query(), run.id()));
            EpochEnds ends = known != null ? known : new EpochEnds(owner);
            OF_RUNS.put(name(run.query(), run.id()), new WeakReference<>(ends));
            return ends;
        }
    }

    /** Those of a run that has a checkpoint at {@code raftlake://}, and took it in this process. */
    public static Optional<EpochEnds> of(String query, String run) {
        synchronized (OF_RUNS) {
            return Optional.ofNullable(get(name(query, run)));
        }
    }

    private static EpochEnds get(String name) {
        WeakReference<EpochEnds> found = OF_RUNS.get(name);
        return found == null ? null : found.get();
    }

    private static String name(String query, String run) {
        return query + " " + run;
    }

    /**
     * Whether the checkpoint lies in this quorum: it is the one where the run has put the owner key. CheckpointFencedException for
     * a run that was replaced.
     */
    public boolean areIn(KeySpace space) throws IOException {
        if (owner.isNamedIn(space)) {
            return true;
        }
        owner.confirm();
        return false;
    }

    /** How the batches of the run begin. */
    public BatchPlans plans() {
        return plans;
    }

    /** Whether this file of the checkpoint is the plan of a batch. */
    boolean isPlan(Path file) {
        return owner.isIn(OFFSETS, file) && NewestBatch.isBatch(file.getName());
    }

    /** From the sink's commit: how the batch is decided. */
    public synchronized void decideWith(long batch, Outcome outcome) {
        requireNoneBefore(batch);
        waiting = new Waiting(batch, outcome);
    }

    /** What has to be decided with this file of the checkpoint. */
    synchronized Optional<Outcome> outcomeOf(Path file) {
        if (!owner.isIn(COMMITS, file) || !NewestBatch.isBatch(file.getName()) || waiting == null) {
            return Optional.empty();
        }
        requireNoneBefore(Long.parseLong(file.getName()));
        return Optional.of(waiting.outcome());
    }

    private void requireNoneBefore(long batch) {
        if (waiting != null && waiting.batch() != batch) {
            throw new IllegalStateException("batch " + batch + " would end, and what the sink has written of batch "
                    + waiting.batch() + " was never decided");
        }
    }

    /**
     * From the sink's commit of a batch that is decided already: {@code rest} waits for what the sink has begun meanwhile. The batch
     * is over once it has returned.
     */
    public synchronized void endWith(long batch, Runnable rest) {
        left = new Left(batch, rest);
    }

    /** What is left to wait for once this file of the checkpoint is there. It is told once. */
    synchronized Optional<Runnable> takeRest(Path file) {
        if (left == null || !owner.isIn(COMMITS, file) || !file.getName().equals(Long.toString(left.batch()))) {
            return Optional.empty();
        }
        Runnable rest = left.rest();
        left = null;
        return Optional.of(rest);
    }

    /** The transaction has happened. */
    synchronized void ended() {
        waiting = null;
    }
}
