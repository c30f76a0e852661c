package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.Position;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Positions that users name, turned into offsets. They are asked once per query, since what a position means depends on the log
 * at that time. Offsets outside of the log are an error or are moved into the log, as {@code failOnDataLoss} says.
 */
final class Positions {
    private static final Logger LOG = LoggerFactory.getLogger(Positions.class);

    /**
     * Where a query begins.
     *
     * @param lateBound partitions that start where the log ended when they were asked for
     * @param maybeLateBound these, and those that may have started so when they were asked for earlier: a record of the asked
     *     time came later
     */
    record Start(SortedMap<TopicPartition, Long> offsets, Set<TopicPartition> lateBound, Set<TopicPartition> maybeLateBound) {
        static Start of(SortedMap<TopicPartition, Long> offsets, Collection<TopicPartition> late,
                Collection<TopicPartition> maybe) {
            Set<TopicPartition> all = new TreeSet<>(late);
            all.addAll(maybe);
            return new Start(offsets, new TreeSet<>(late), all);
        }
    }

    private final LogView view;
    private final SourceOptions options;

    Positions(LogView view, SourceOptions options) {
        this.view = view;
        this.options = options;
    }

    /** What can be refused before any query runs: topics and partitions that do not exist. */
    void requireReadable() {
        view.requireSelected();
        requireKnown("startingOffsets", options.starting());
        requireKnown("endingOffsets", options.ending());
    }

    /** IllegalArgumentException where a position names partitions that do not exist. */
    private void requireKnown(String option, Position position) {
        if (position instanceof Position.AtOffsets at) {
            view.requireExisting(option, at.offsets().keySet());
        } else if (position instanceof Position.AtTimestamps at) {
            view.requireExisting(option + "ByTimestamp", at.timestampsMs().keySet());
        }
    }

    /** For every partition that the query reads. */
    Start start() {
        SortedSet<TopicPartition> partitions = view.requireSelected();
        Position position = options.starting();
        if (position instanceof Position.Latest) {
            return Start.of(latest(partitions), partitions, List.of());
        }
        if (position instanceof Position.AtOffsets at) {
            requireKnown("startingOffsets", at);
            requireAll("startingOffsets", at.offsets(), partitions);
            List<TopicPartition> late = at.offsets().keySet().stream()
                    .filter(each -> at.offsets().get(each) == OffsetJson.LATEST)
                    .toList();
            return Start.of(withinTheLog(at.offsets()), late, List.of());
        }
        if (position == null || position instanceof Position.Earliest) {
            return Start.of(earliest(partitions), List.of(), List.of());
        }
        return startAtTimes(timestamps("startingOffsetsByTimestamp", position, partitions));
    }

    private Start startAtTimes(SortedMap<TopicPartition, Long> timesMs) {
        SortedMap<TopicPartition, Long> found = atTimestamps(timesMs);
        List<TopicPartition> unmatched = unmatched(found);
        if (!unmatched.isEmpty() && !options.startsAtLatestWithoutMatch()) {
            throw Errors.noOffsetForTimestamp(unmatched.get(0), timesMs.get(unmatched.get(0)));
        }
        List<TopicPartition> maybe = options.startsAtLatestWithoutMatch() ? List.copyOf(found.keySet()) : List.of();
        found.putAll(latest(unmatched));
        return Start.of(found, unmatched, maybe);
    }

    private static List<TopicPartition> unmatched(SortedMap<TopicPartition, Long> found) {
        return found.keySet().stream().filter(each -> found.get(each) < 0).toList();
    }

    /** Where a batch query ends, exclusive, for every partition that it reads. */
    SortedMap<TopicPartition, Long> end() {
        SortedSet<TopicPartition> partitions = view.requireSelected();
        Position position = options.ending();
        if (position == null || position instanceof Position.Latest) {
            return latest(partitions);
        }
        if (position instanceof Position.Earliest) {
            return earliest(partitions);
        }
        if (position instanceof Position.AtOffsets at) {
            requireKnown("endingOffsets", at);
            requireAll("endingOffsets", at.offsets(), partitions);
            return endWithinTheLog(at.offsets());
        }
        SortedMap<TopicPartition, Long> found =
                atTimestamps(timestamps("endingOffsetsByTimestamp", position, partitions));
        found.putAll(latest(unmatched(found)));
        return found;
    }

    private SortedMap<TopicPartition, Long> timestamps(
            String option, Position position, SortedSet<TopicPartition> partitions) {
        if (position instanceof Position.AtTimestamps at) {
            view.requireExisting(option, at.timestampsMs().keySet());
            if (!at.timestampsMs().keySet().equals(partitions)) {
                throw Errors.incompleteTimestamps(option, at.timestampsMs().keySet(), partitions);
            }
            return at.timestampsMs();
        }
        SortedMap<TopicPartition, Long> all = new TreeMap<>();
        partitions.forEach(partition -> all.put(partition, ((Position.AtTimestamp) position).timestampMs()));
        return all;
    }

    private static void requireAll(
            String option, SortedMap<TopicPartition, Long> offsets, SortedSet<TopicPartition> partitions) {
        if (!offsets.keySet().equals(partitions)) {
            throw Errors.incompleteOffsets(option, offsets.keySet(), partitions);
        }
    }

    /** Starting offsets with -1 and -2 resolved; those outside of the log are lost data, or moved to its nearer end. */
    private SortedMap<TopicPartition, Long> withinTheLog(SortedMap<TopicPartition, Long> offsets) {
        SortedMap<TopicPartition, Long> first = earliest(offsets.keySet());
        SortedMap<TopicPartition, Long> last = latest(offsets.keySet());
        SortedMap<TopicPartition, Long> found = new TreeMap<>();
        offsets.forEach((partition, offset) -> {
            long begin = first.get(partition);
            long end = last.get(partition);
            if (offset < 0) {
                found.put(partition, offset == OffsetJson.EARLIEST ? begin : end);
                return;
            }
            found.put(partition, Math.min(Math.max(offset, begin), end));
            if (!offset.equals(found.get(partition))) {
                DataLoss.report("startingOffsets for " + partition + " is " + offset + ", but the log holds [" + begin + ", "
                        + end + ") only", options.failOnDataLoss());
            }
        });
        return found;
    }

    /** Ending offsets with -1 resolved; those that are not written yet are refused, or moved to the log's end. */
    private SortedMap<TopicPartition, Long> endWithinTheLog(SortedMap<TopicPartition, Long> offsets) {
        SortedMap<TopicPartition, Long> last = latest(offsets.keySet());
        SortedMap<TopicPartition, Long> found = new TreeMap<>();
        offsets.forEach((partition, offset) -> {
            long end = last.get(partition);
            found.put(partition, offset == OffsetJson.LATEST ? end : Math.min(offset, end));
            if (offset > end) {
                IllegalArgumentException beyond = Errors.endBeyondTheLog(partition, offset, end);
                if (options.failOnDataLoss()) {
                    throw beyond;
                }
                LOG.warn("{}", beyond.getMessage());
            }
        });
        return found;
    }

    // --- offsets of all that was asked for; a topic that vanishes meanwhile does not exist -------------------------------

    private SortedMap<TopicPartition, Long> earliest(Collection<TopicPartition> partitions) {
        return allOf(partitions, view.earliest(partitions));
    }

    private SortedMap<TopicPartition, Long> latest(Collection<TopicPartition> partitions) {
        return allOf(partitions, view.latest(partitions));
    }

    private SortedMap<TopicPartition, Long> atTimestamps(SortedMap<TopicPartition, Long> timesMs) {
        return allOf(timesMs.keySet(), view.atTimestamps(timesMs));
    }

    private SortedMap<TopicPartition, Long> allOf(
            Collection<TopicPartition> partitions, SortedMap<TopicPartition, Long> found) {
        List<TopicPartition> vanished = partitions.stream().filter(each -> !found.containsKey(each)).toList();
        if (!vanished.isEmpty()) {
            List<String> topics = TopicPartition.topicsOf(vanished);
            view.requireTold(topics);
            throw view.missingTopics(topics);
        }
        return found;
    }
}
