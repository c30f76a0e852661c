package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TierOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.connector.table.Span;
import io.raftlake.spark.log.RangeFetches;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;

/** The tasks of a read. */
final class Planner {
    /** Ranges of at least so many offsets are spread over all replicas; shorter ones are read from the leader. */
    private static final long SPREAD_OFFSETS_MIN = 1_000;

    private static final long US_PER_MS = 1_000;

    private final LogView view;
    private final SourceOptions options;
    private final Tables tables;
    private final Supplier<ParquetPartitionReaderFactory> parquet;

    /** {@code parquet} gives Spark's readers of tables' files; it is asked where a table is read. */
    Planner(LogView view, SourceOptions options, Tables tables, Supplier<ParquetPartitionReaderFactory> parquet) {
        this.view = view;
        this.options = options;
        this.tables = tables;
        this.parquet = parquet;
    }

    /** The tasks of a batch query: everything between its two positions that may be wanted. */
    List<PlannedRange> batch(Wanted wanted) {
        Positions positions = new Positions(view, options);
        SortedMap<TopicPartition, Long> start = positions.start().offsets();
        // Those that the start is of: the look for the end may find topics that were created again.
        Map<String, String> topicIds = view.topicIds();
        SortedMap<TopicPartition, Long> end = positions.end();
        List<OffsetRange> ranges = new ArrayList<>();
        end.forEach((partition, until) -> {
            long begin = start.getOrDefault(partition, until);
            if (until < begin) {
                if (until >= view.earliest(List.of(partition)).getOrDefault(partition, begin)) {
                    throw Errors.endBeforeStart(partition, begin, until);
                }
                DataLoss.report("Partition " + partition + " ends at " + until + ", before its start " + begin,
                        options.failOnDataLoss());
            }
            ranges.add(new OffsetRange(partition, begin, until));
        });
        return tasks(ranges, topicIds, wanted);
    }

    /** {@code topicIds} by name: those that the ranges are of. */
    List<PlannedRange> tasks(List<OffsetRange> ranges, Map<String, String> topicIds, Wanted wanted) {
        List<OffsetRange> narrowed = ranges.stream().map(wanted::narrow).filter(Objects::nonNull).toList();
        Map<TopicPartition, Span> shown = tables.shown(narrowed, topicIds);
        List<OffsetRange> cut = new ArrayList<>();
        for (OffsetRange range : narrowed) {
            Span span = shown.get(range.at());
            for (OffsetRange piece : Seam.split(range, span)) {
                cut.addAll(span != null && span.holds(piece.start()) ? ofTable(piece, span, wanted) : ofLog(piece, wanted));
            }
        }
        List<PlannedRange> tasks = new ArrayList<>();
        for (OffsetRange piece : Ranges.split(cut, options.partitionsMin(), options.recordsPerPartitionMax())) {
            List<Integer> replicas = view.replicas(piece.at());
            tasks.add(new PlannedRange(piece, topicIds.get(piece.at().topic()), options.quorum(),
                    chooseNode(replicas, piece, tasks.size()), replicas, options.failOnDataLoss(), options.readsCommitted(),
                    table(piece, shown.get(piece.at()))));
        }
        return tasks;
    }

    /** The tasks of a batch of real-time mode: whole ranges, empty ones too, from the log's leaders. */
    List<PlannedRange> realTime(List<OffsetRange> ranges, Map<String, String> topicIds) {
        return ranges.stream()
                .map(range -> new PlannedRange(range, topicIds.get(range.at().topic()), options.quorum(), RangeFetches.LEADER,
                        view.replicas(range.at()), options.failOnDataLoss(), options.readsCommitted(), null))
                .toList();
    }

    private static List<OffsetRange> ofTable(OffsetRange piece, Span span, Wanted wanted) {
        List<OffsetRange> cut = new ArrayList<>();
        for (OffsetRange kept : Seam.withTimes(piece, span, wanted)) {
            cut.addAll(Seam.cutByBytes(kept, span.within(kept.start(), kept.end()), Seam.TASK_BYTES));
        }
        return cut;
    }

    /** Null for a range of the log. */
    private TablePiece table(OffsetRange piece, Span span) {
        if (span == null || !span.holds(piece.start())) {
            return null;
        }
        boolean readsLog = options.tier().mode() != TierOptions.Mode.REMOTE;
        return TablePiece.of(parquet.get(), piece, span.within(piece.start(), piece.end()), readsLog);
    }

    /** A range of the log from its first record on that is as late as a time. Records have milliseconds. */
    private List<OffsetRange> ofLog(OffsetRange range, Wanted wanted) {
        Long usMin = wanted.usMin();
        if (usMin == null) {
            return List.of(range);
        }
        SortedMap<TopicPartition, Long> asked = new TreeMap<>();
        asked.put(range.at(), Math.max(0, -Math.floorDiv(-usMin, US_PER_MS)));
        long found = view.atTimestamps(asked).getOrDefault(range.at(), range.start());
        long start = found < 0 ? range.end() : Math.max(range.start(), found);
        return start < range.end() ? List.of(range.within(start, range.end())) : List.of();
    }

    /** Neighbouring tasks read from different nodes, and a partition's from the same one in every batch. */
    private static int chooseNode(List<Integer> replicas, OffsetRange range, int index) {
        return range.size() < SPREAD_OFFSETS_MIN || replicas.isEmpty()
                ? RangeFetches.LEADER : replicas.get(index % replicas.size());
    }
}
