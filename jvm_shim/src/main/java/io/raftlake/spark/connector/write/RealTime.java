package io.raftlake.spark.connector.write;

import io.raftlake.spark.checkpoint.EpochEnds;
import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.OptionNames;
import io.raftlake.spark.connector.read.Asking;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Which guarantee the sink gives in real-time mode. */
final class RealTime {
    static final String EXACTLY_ONCE = "exactly-once";
    static final String AT_LEAST_ONCE = "at-least-once";

    /** From the end of a batch to the commit of its rows. */
    static final long END_MS_MAX = 30_000;

    private static final Logger LOG = LoggerFactory.getLogger(RealTime.class);

    /** Runs that were told what they get. */
    private static final Set<String> TOLD = ConcurrentHashMap.newKeySet();

    private RealTime() {}

    /**
     * What decides the batches of a run, so that each row is visible once; nothing where the sink writes at least once.
     *
     * @param lastsMs how long a batch is open
     */
    static Optional<EpochEnds> ends(SinkOptions options, String query, String run, long lastsMs) {
        if (AT_LEAST_ONCE.equals(options.realTime())) {
            tell(query, run, "'" + OptionNames.REAL_TIME_DELIVERY + "' says so");
            return Optional.empty();
        }
        Optional<EpochEnds> ends = EpochEnds.of(query, run).filter(found -> Asking.patiently(
                options.quorum().patience(), "the owner of the checkpoint", () -> found.areIn(SinkClient.of(options.quorum()).keys())));
        if (ends.isPresent()) {
            requireTime(options.transactionMs(), lastsMs);
        } else if (EXACTLY_ONCE.equals(options.realTime())) {
            throw Errors.wrongValue(OptionNames.REAL_TIME_DELIVERY, EXACTLY_ONCE, AT_LEAST_ONCE + ": the checkpoint of the query "
                    + "is not at raftlake:// in the quorum of the sink, in a session of configure()");
        } else {
            tell(query, run, "its checkpoint is not at raftlake:// in the quorum of the sink");
        }
        return ends;
    }

    /** A transaction that nodes abort amid its batch would make every batch fail. */
    static void requireTime(long transactionMs, long lastsMs) {
        if (transactionMs < lastsMs + END_MS_MAX) {
            throw Errors.wrongValue(OptionNames.TRANSACTION_TIMEOUT, Long.toString(transactionMs), (lastsMs + END_MS_MAX)
                    + " or more, and 'transaction.max.timeout.ms' of the nodes not below it: the rows of a batch of real-time mode "
                    + "wait " + lastsMs + " ms for its end. Or shorten the trigger; or set '" + OptionNames.REAL_TIME_DELIVERY
                    + "' to '" + AT_LEAST_ONCE + "'");
        }
    }

    private static void tell(String query, String run, String why) {
        if (TOLD.add(run)) {
            LOG.warn("query {}: in real-time mode the sink writes at least once, since {}. Rows are visible at once, and those of a "
                    + "batch that fails, or is repeated by a restart, may be there twice", query, why);
        }
    }
}
