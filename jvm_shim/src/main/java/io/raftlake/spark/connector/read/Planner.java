package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.log.RangeFetches;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;

/** The tasks of a read. */
final class Planner {
    /** Ranges of at least so many offsets are spread over all replicas; shorter ones are read from the leader. */
    private static final long SPREAD_OFFSETS_MIN = 1_000;

    private static final long US_PER_MS = 1_000;

    private final LogView view;
    private final SourceOptions options;

    Planner(LogView view, SourceOptions options) {
        this.view = view;
        this.options = options;
    }

    /** The tasks of a batch query: everything between its two positions that may be wanted. */
    List<PlannedRange> batch(Wanted wanted) {
        Positions positions = new Positions(view, options);
        SortedMap<TopicPartition, Long> start = positions.start().offsets();
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
        return tasks(ranges, view.topicIds(), wanted);
    }

    /** {@code topicIds} by name: those that the ranges are of. */
    List<PlannedRange> tasks(List<OffsetRange> ranges, Map<String, String> topicIds, Wanted wanted) {
        List<OffsetRange> cut = new ArrayList<>();
        for (OffsetRange range : ranges) {
            OffsetRange narrowed = wanted.narrow(range);
            narrowed = narrowed == null || wanted.usMin() == null ? narrowed : fromTime(narrowed, wanted.usMin());
            if (narrowed != null) {
                cut.add(narrowed);
            }
        }
        List<PlannedRange> tasks = new ArrayList<>();
        for (OffsetRange piece : Ranges.split(cut, options.partitionsMin(), options.recordsPerPartitionMax())) {
            List<Integer> replicas = view.replicas(piece.at());
            tasks.add(new PlannedRange(piece, topicIds.get(piece.at().topic()), options.quorum(),
                    chooseNode(replicas, piece, tasks.size()), replicas, options.failOnDataLoss(), options.readsCommitted()));
        }
        return tasks;
    }

    /** A range from its first record on that is as late as a time; null where none is. Records have milliseconds. */
    private OffsetRange fromTime(OffsetRange range, long usMin) {
        SortedMap<TopicPartition, Long> asked = new TreeMap<>();
        asked.put(range.at(), Math.max(0, -Math.floorDiv(-usMin, US_PER_MS)));
        long found = view.atTimestamps(asked).getOrDefault(range.at(), range.start());
        long start = found < 0 ? range.end() : Math.max(range.start(), found);
        return start < range.end() ? range.within(start, range.end()) : null;
    }

    /** Neighbouring tasks read from different nodes, and a partition's from the same one in every batch. */
    private static int chooseNode(List<Integer> replicas, OffsetRange range, int index) {
        return range.size() < SPREAD_OFFSETS_MIN || replicas.isEmpty()
                ? RangeFetches.LEADER : replicas.get(index % replicas.size());
    }
}
