package io.raftlake.spark.connector.write;

import io.raftlake.spark.connector.write.SinkKeys.Driver;
import io.raftlake.spark.connector.write.SinkKeys.Job;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;

/** Batch writes without an app: each has a number of its own while it lasts, and its rows become visible together. */
final class JobLedger {
    /** A job whose driver is gone leaves its number taken for so long. */
    private static final long JOB_AGE_MS_MAX = 24L * 3600 * 1000;

    /** Whether a write has ended can be told for so long. */
    private static final long DONE_AGE_MS_MAX = 5L * 60 * 1000;

    private static final int LOOKS_MAX = 100;

    private final KeySpace keys;
    private final Leftovers leftovers;
    private final LongSupplier nowMs;

    JobLedger(KeySpace keys, Leftovers leftovers, LongSupplier nowMs) {
        this.keys = keys;
        this.leftovers = leftovers;
        this.nowMs = nowMs;
    }

    /** A number for a batch write that no other one has. One whose driver is gone is taken again after a day. */
    JobNumber claim(String job, Driver driver) throws IOException {
        for (int looks = 0; looks < LOOKS_MAX; looks++) {
            Map<String, Entry> taken = entries();
            long number = 0;
            while (!isFree(taken.get(SinkKeys.jobKey(number)))) {
                number++;
            }
            String key = SinkKeys.jobKey(number);
            byte[] mine = new Job(job, driver.host(), driver.pid(), nowMs.getAsLong(), false).encode();
            long version = put(key, taken.containsKey(key) ? taken.get(key).version() : KeySpace.ABSENT, mine);
            if (version != 0) {
                sweepEnded(taken);
                return new JobNumber(job, number, version);
            }
        }
        throw new SinkFailedException("other batch writes took a number " + LOOKS_MAX + " times while this one tried to");
    }

    /** Aborts what tasks of failed writes have opened behind the last look of their driver. */
    private void sweepEnded(Map<String, Entry> taken) {
        taken.forEach((key, entry) -> {
            if (Job.decode(entry.value()).isDone()) {
                long number = Long.parseLong(key.substring(SinkKeys.JOBS.length()));
                leftovers.sweep(SinkKeys.jobTransactions(number), key, entry.version(), List.of());
            }
        });
    }

    /** The new version of a key that had this one; 0 where another one was faster. */
    private long put(String key, long before, byte[] mine) throws IOException {
        long version = 0;
        try {
            version = keys.commit(new Txn().compare(key, before).put(key, mine), Witness.put(key, mine)).version();
        } catch (UnknownOutcomeException unknown) {
            // The key tells.
        }
        if (version != 0) {
            return version;
        }
        Optional<Entry> found = keys.get(key);
        return found.isPresent() && Arrays.equals(found.get().value(), mine) ? found.get().version() : 0;
    }

    private boolean isFree(Entry entry) {
        if (entry == null) {
            return true;
        }
        Job job = Job.decode(entry.value());
        return nowMs.getAsLong() - job.sinceMs() > (job.isDone() ? DONE_AGE_MS_MAX : JOB_AGE_MS_MAX);
    }

    private Map<String, Entry> entries() throws IOException {
        Map<String, Entry> found = new HashMap<>();
        ListRequest request = ListRequest.deep(SinkKeys.JOBS, true);
        while (true) {
            Page page = keys.list(request);
            page.entries().forEach(entry -> found.put(entry.key(), entry));
            if (!page.more() || page.entries().isEmpty()) {
                return found;
            }
            request = request.after(page.entries().get(page.entries().size() - 1).key());
        }
    }

    /** {@link SinkFailedException} where the write has ended, or its number was taken: its rows would never be visible. */
    void require(JobNumber job) throws IOException {
        Optional<Entry> found = keys.get(SinkKeys.jobKey(job.number()));
        if (found.isEmpty() || found.get().version() != job.version()) {
            throw new SinkFailedException(
                    "the batch write with the number " + job.number() + " has ended, and this task began too late");
        }
    }

    /** Makes all rows of a batch write visible. {@link SinkFailedException} where they cannot be any more. */
    void commit(JobNumber job, Collection<Ending> endings) throws IOException {
        if (endings.size() > SinkKeys.TASKS_MAX) {
            throw new SinkFailedException("the write has rows of " + endings.size() + " tasks, and one commit takes "
                    + SinkKeys.TASKS_MAX + ": call coalesce(" + SinkKeys.TASKS_MAX + ") or less before it");
        }
        String key = SinkKeys.jobKey(job.number());
        leftovers.sweep(SinkKeys.jobTransactions(job.number()), key, job.version(), endings);
        byte[] done = done(job);
        Txn txn = new Txn().compare(key, job.version());
        endings.forEach(ending -> txn.endTxn(ending.producerId(), ending.epoch(), true));
        TxnResult result = keys.commit(txn.put(key, done), Witness.put(key, done));
        if (result.succeeded()) {
            return;
        }
        Optional<Entry> found = keys.get(key);
        if (found.isPresent() && Arrays.equals(found.get().value(), done)) {
            return;
        }
        if (result.inTheWay().isEmpty()) {
            throw new SinkFailedException(Ledger.whyRefused("the commit of the write", result.refused()));
        }
        throw new SinkFailedException(
                "somebody else ended the batch write with the number " + job.number() + ": its rows are not visible");
    }

    /**
     * Gives a batch write up, as far as the quorum can be told: no task of it begins any more, and what tasks have opened is
     * aborted, also by those that were killed and told nothing. What it returns is for {@link #lookAgain}.
     */
    JobNumber abort(JobNumber job, Collection<Ending> endings) throws IOException {
        leftovers.giveUp(endings);
        JobNumber ended = new JobNumber(job.job(), job.number(), put(SinkKeys.jobKey(job.number()), job.version(), done(job)));
        lookAgain(ended);
        return ended;
    }

    /** Aborts what tasks of a write that has ended opened meanwhile; nothing where the write was not its caller's any more. */
    void lookAgain(JobNumber ended) {
        if (ended.version() != 0) {
            leftovers.sweep(SinkKeys.jobTransactions(ended.number()), SinkKeys.jobKey(ended.number()), ended.version(), List.of());
        }
    }

    private byte[] done(JobNumber job) {
        return new Job(job.job(), "", 0, nowMs.getAsLong(), true).encode();
    }
}
