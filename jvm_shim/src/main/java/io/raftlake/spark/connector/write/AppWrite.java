package io.raftlake.spark.connector.write;

import io.raftlake.spark.checkpoint.EpochEnds;
import io.raftlake.spark.connector.read.Asking;
import io.raftlake.spark.connector.write.SinkKeys.Committed;
import io.raftlake.spark.connector.write.SinkKeys.Driver;
import io.raftlake.spark.log.Ahead;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.ProducerId;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The driver's half of the batches of one app: who may write, and what becomes visible. */
final class AppWrite {
    private static final Logger LOG = LoggerFactory.getLogger(AppWrite.class);

    /** A begin that takes longer is of no use: the task begins itself. */
    private static final long EARLY_MS_MAX = 1_000;

    /** How long a writer waits for partitions to show what it has committed. */
    private static final long SETTLE_MS_MAX = 5_000;

    private final SinkOptions options;
    private final String app;
    private final String run;
    private final String query;
    private final SinkProgress progress;
    private final boolean hasNext;
    private Standing standing;

    /** What the last commit left; null where it has to be asked. Whoever has taken the app since is met by the next commit. */
    private Standing following;

    /** After each batch: an attempt that a lost executor or an older driver began amid it holds readers off its rows. */
    private final LaterSweep sweeping = new LaterSweep(this::sweepQuietly,
            (command, afterMs) -> CompletableFuture.delayedExecutor(afterMs, TimeUnit.MILLISECONDS).execute(command),
            AppWrite::nowMs);

    private final NextProducers nextProducers = new NextProducers(AppWrite::nowMs);
    private final LikelyPartitions likely = new LikelyPartitions();
    private long begunAtMs;

    /** {@code hasNext}: a batch follows each batch. */
    AppWrite(SinkOptions options, String app, String run, String query, SinkProgress progress, boolean hasNext) {
        this.options = options;
        this.app = app;
        this.run = run;
        this.query = query;
        this.progress = progress;
        this.hasNext = hasNext;
    }

    private static long nowMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    private SinkClient client() {
        return SinkClient.of(options.quorum());
    }

    /** Before the tasks of a batch. {@link SinkFencedException}: a newer run owns the sink. */
    Standing begin() {
        awaitSweep();
        Standing known = following;
        following = null;
        begunAtMs = nowMs();
        standing = known != null ? known : Asking.patiently(options.quorum().patience(), "the owner of the sink",
                () -> client().ledger().enter(app, run, query, Driver.current()));
        return standing;
    }

    /** In front of all tasks of a batch: Spark's plan of it may be under way, where the checkpoint lies in a quorum. */
    void awaitPlan() {
        Optional<EpochEnds> ends = EpochEnds.of(query, run);
        if (ends.isEmpty()) {
            return;
        }
        try {
            ends.get().plans().awaitInFrontOfTasks();
        } catch (IOException error) {
            throw new UncheckedIOException(error.getMessage(), error);
        }
    }

    /** Those of the tasks of the batch that {@link #begin} has begun, as far as they were asked for. */
    Map<Integer, ProducerId> producers() {
        try {
            Map<Integer, ProducerId> found = nextProducers.take();
            int slots = SparkRun.slots();
            found.forEach((task, producer) -> beginEarly(task, producer, likely.of(task, slots)));
            return found;
        } catch (InterruptedIOException interrupted) {
            throw new UncheckedIOException(interrupted);
        }
    }

    /** Beside Spark's own work until the task runs. What fails here the task does itself; what no task needs is swept. */
    private void beginEarly(int task, ProducerId producer, List<Partition> partitions) {
        if (partitions.isEmpty()) {
            return;
        }
        String name = firstTransactionalId(standing.generation(), task);
        Ahead.of("the begin of " + name, () -> {
            try {
                client().transactions().begin(name, producer, partitions, EARLY_MS_MAX);
            } catch (IOException error) {
                LOG.debug("{} begins with its first row: {}", name, error.getMessage());
            }
            return null;
        });
    }

    private void askForNextProducers(List<TaskReport> reports) {
        long generation = standing.generation();
        nextProducers.ask(TaskReport.tasksWithRows(reports),
                task -> client().transactions().nextOf(firstTransactionalId(generation, task), options.patience()));
    }

    /** Of the first attempt of a task. */
    private String firstTransactionalId(long generation, int task) {
        return SinkKeys.appTransactionalId(app, generation, task, 0);
    }

    /**
     * As {@link #begin}, before the tasks of a batch of real-time mode, whose rows are others where it is repeated. {@code number}:
     * -1 where it is not known yet.
     */
    Standing beginEpoch(long number) {
        Standing found = begin();
        if (number >= 0) {
            requireNew(number);
        }
        sweepQuietly();
        return found;
    }

    private void requireNew(long number) {
        if (standing.lastBatch() < number) {
            return;
        }
        // Spark has removed what the checkpoint knew of the batch, and may be started in another mode next.
        Asking.patiently(options.quorum().patience(), "the note that batch " + number + " was planned anew", () -> {
            client().ledger().noteReplanned(standing);
            return null;
        });
        throw replanned(number);
    }

    private SinkFailedException replanned(long number) {
        return new SinkFailedException("batch " + number + " of " + app + " is visible already, and Spark writes it anew with "
                + "other rows, since its checkpoint does not have it as done. 'raftlake sinks forget " + app + "' lets it be "
                + "written: rows of the batches that were visible come once more");
    }

    /** Has the rows of a batch of real-time mode become visible with the end of the batch. */
    void commitWith(EpochEnds ends, long number, WriterCommitMessage[] messages) {
        requireNew(number);
        List<TaskReport> reports = TaskReport.of(messages);
        List<Ending> endings = TaskReport.endings(reports);
        Ledger.requireRoom(number, endings.size(), SinkKeys.EPOCH_TASKS_MAX);
        Committed batch = committed(number, reports, messages.length);
        long toldAtNs = System.nanoTime();
        Runnable behind = () -> lookAfter(batch, reports, System.nanoTime() - toldAtNs);
        ends.decideWith(number, Asking.patiently(options.quorum().patience(), "the listeners of the quorum", () ->
                new EpochRows(client().ledger(), client().leftovers(), standing, batch, endings, behind)));
    }

    private Committed committed(long number, List<TaskReport> reports, int tasks) {
        Map<String, Long> topics = TaskReport.rows(reports);
        long rows = topics.values().stream().mapToLong(Long::longValue).sum();
        return new Committed(number, run, rows, tasks, System.currentTimeMillis(), topics);
    }

    /** Waits until readers are shown the batch, and tells of it. */
    private void lookAfter(Committed batch, List<TaskReport> reports, long commitNs) {
        long committedAtNs = System.nanoTime();
        client().leftovers().settle(reports.stream().map(TaskReport::transaction).toList(), SETTLE_MS_MAX);
        progress.committed(batch.batch(), batch.rows(), (int) batch.tasks(), commitNs, System.nanoTime() - committedAtNs);
    }

    /** Makes one batch visible, unless it is. After an exception nothing of it is. */
    void commit(long number, WriterCommitMessage[] messages) {
        List<TaskReport> reports = TaskReport.of(messages);
        if (standing.lastBatch() >= number) {
            abort(messages);
            if (standing.isReplanned()) {
                throw replanned(number);
            }
            LOG.info("batch {} of {} is visible already, and was not written again", number, app);
            return;
        }
        Committed batch = committed(number, reports, messages.length);
        long begunAtNs = System.nanoTime();
        Ledger.Outcome outcome = Asking.patiently(options.quorum().patience(), "the commit of batch " + number,
                () -> client().ledger().commit(standing, batch, TaskReport.endings(reports)));
        long commitNs = System.nanoTime() - begunAtNs;
        following = outcome.following();
        if (hasNext) {
            askForNextProducers(reports);
            likely.note(reports, nowMs() - begunAtMs);
        }
        LOG.info("batch {} of {}: {} rows{}", number, app, batch.rows(), outcome.isNews() ? "" : " were visible already");
        show(batch, reports, commitNs);
        if (hasNext) {
            sweeping.behindBatch();
        } else {
            // Another write of the app may begin as soon as this one is over.
            sweepQuietly();
        }
    }

    /** Waits until readers are shown the batch; beside the file that ends the batch, where that lies at {@code raftlake://}. */
    private void show(Committed batch, List<TaskReport> reports, long commitNs) {
        Optional<EpochEnds> ends = hasNext ? EpochEnds.of(query, run) : Optional.empty();
        if (ends.isEmpty()) {
            lookAfter(batch, reports, commitNs);
            return;
        }
        Ahead<Void> shown = Ahead.of("the readers of batch " + batch.batch(), () -> {
            lookAfter(batch, reports, commitNs);
            return null;
        });
        ends.get().endWith(batch.batch(), () -> awaitQuietly(shown));
    }

    private static void awaitQuietly(Ahead<Void> shown) {
        try {
            shown.getOrNull();
        } catch (InterruptedIOException interrupted) {
            LOG.debug("the query is stopped, and readers may be shown its last batch later", interrupted);
        }
    }

    private void awaitSweep() {
        try {
            sweeping.beforeBatch();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new UncheckedIOException(new InterruptedIOException("interrupted while the batch before was looked after"));
        }
    }

    private void sweepQuietly() {
        try {
            sweep();
        } catch (IOException | RuntimeException error) {
            LOG.warn("open transactions of {} are left to their time limit: {}", app, error.getMessage());
        }
    }

    private void sweep() throws IOException {
        int aborted = client().leftovers().sweep(
                SinkKeys.appTransactions(app), SinkKeys.ownerKey(app), standing.ownerVersion(), List.of());
        if (aborted > 0) {
            LOG.info("aborted {} transactions of {} that no task needs", aborted, app);
        }
    }

    /**
     * Aborts what the tasks have told of, as far as the quorum can be told; of the owner's batch also what killed tasks left. A
     * query that is stopped interrupts its threads meanwhile, and this is done all the same. Some tasks end later: where a
     * batch follows each batch, their transactions are swept then, and elsewhere {@link AbortedWrite} looks again.
     */
    void abort(WriterCommitMessage[] messages) {
        Ahead.of("the abort of a batch of " + app, () -> {
            abortNow(messages);
            return null;
        }).awaitEnd();
        if (standing != null && hasNext) {
            sweeping.behindBatch();
        }
    }

    /** Behind an abort: for tasks that have ended since. */
    void lookAgain() {
        if (standing != null) {
            sweepQuietly();
        }
    }

    private void abortNow(WriterCommitMessage[] messages) {
        try {
            client().leftovers().giveUp(TaskReport.endings(TaskReport.of(messages)));
            if (standing != null) {
                sweep();
            }
        } catch (IOException error) {
            LOG.warn("transactions of {} are left to their time limit: {}", app, error.getMessage());
        }
    }
}
