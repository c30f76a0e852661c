package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Columns;
import io.raftlake.spark.connector.Quorum;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** What a query reads of the topics: its columns, what its filters leave, and how many rows it may stop after. */
public final class RaftlakeScanBuilder
        implements SupportsPushDownV2Filters, SupportsPushDownRequiredColumns, SupportsPushDownLimit {
    /** Before a query runs a wrong address is said soon, and no outage is waited for. */
    private static final long FIRST_CONTACT_MS = 10_000;

    private final SourceOptions options;
    private StructType columns;
    private Wanted wanted = Wanted.ALL;
    private Predicate[] pushed = {};
    private long rowsMax = Long.MAX_VALUE;

    public RaftlakeScanBuilder(SourceOptions options) {
        this.options = options;
        this.columns = Columns.ofSource(options.includeHeaders());
    }

    /** What can be refused before any query runs: no reachable node, topics and partitions that do not exist. */
    public static void requireReadable(SourceOptions options) {
        Quorum.Patience patience = options.quorum().patience();
        Quorum.Patience once = new Quorum.Patience(
                Math.min(FIRST_CONTACT_MS, patience.askMs()), 0, 0, patience.requestMs(), patience.setting());
        SourceOptions soon = options.with(new Quorum(options.quorum().servers(), options.quorum().clientId(), once));
        try {
            new Positions(Sources.of(soon, false).view(), soon).requireReadable();
        } catch (UncheckedIOException outage) {
            if (outage.getCause() instanceof QuorumUnavailableException away) {
                throw new UncheckedIOException(new QuorumUnavailableException(Asking.line(
                        "no reachable node among " + options.quorum().servers() + " (" + away.getMessage() + ")")));
            }
            throw outage;
        }
    }

    static LogReads client(Quorum quorum) {
        return LogReads.of(
                Bootstrap.parse(quorum.servers()), quorum.patience().askMs(), quorum.patience().requestMs());
    }

    /** Spark applies each of them again: they only save reading. */
    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
        List<Predicate> taken = new ArrayList<>();
        for (Predicate predicate : predicates) {
            if (Wanted.takes(predicate)) {
                wanted = wanted.meeting(predicate);
                taken.add(predicate);
            }
        }
        pushed = taken.toArray(Predicate[]::new);
        return predicates;
    }

    @Override
    public Predicate[] pushedPredicates() {
        return pushed;
    }

    @Override
    public void pruneColumns(StructType required) {
        columns = required;
    }

    /** No task reads more; Spark takes as many of all. */
    @Override
    public boolean pushLimit(int limit) {
        rowsMax = limit;
        return true;
    }

    @Override
    public Scan build() {
        return new RaftlakeScan(options, columns, wanted, rowsMax);
    }
}
