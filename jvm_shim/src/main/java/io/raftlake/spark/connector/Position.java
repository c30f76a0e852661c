package io.raftlake.spark.connector;

import java.io.Serializable;
import java.util.List;
import java.util.Locale;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeSet;

/** Where a query begins or ends, as a user says it. */
public sealed interface Position extends Serializable {
    /** The first offset that each partition still holds. */
    record Earliest() implements Position {}

    /** The end of each partition at the time of the first plan. */
    record Latest() implements Position {}

    /** An offset per partition; {@link OffsetJson#LATEST} and {@link OffsetJson#EARLIEST} stand for themselves. */
    record AtOffsets(SortedMap<TopicPartition, Long> offsets) implements Position {}

    /** The first record at or after a time, in ms since 1970, the same for all partitions. */
    record AtTimestamp(long timestampMs) implements Position {}

    /** The first record at or after a time per partition. */
    record AtTimestamps(SortedMap<TopicPartition, Long> timestampsMs) implements Position {}

    /** The one of these options that is given, or null. IllegalArgumentException for one that cannot be used. */
    static Position of(RawOptions options, List<String> candidates, Selection selection) {
        String name = options.onlyOne(candidates);
        if (name == null) {
            return null;
        }
        if (name.equals(OptionNames.STARTING_TIMESTAMP) || name.equals(OptionNames.ENDING_TIMESTAMP)) {
            return new AtTimestamp(options.timestampMs(name));
        }
        String value = options.get(name);
        if (name.equals(OptionNames.STARTING_OFFSETS_BY_TIMESTAMP) || name.equals(OptionNames.ENDING_OFFSETS_BY_TIMESTAMP)) {
            SortedMap<TopicPartition, Long> timestampsMs = selected(name, value, selection);
            if (timestampsMs.values().stream().anyMatch(timestamp -> timestamp < 0)) {
                throw Errors.wrongValue(name, value, "milliseconds since 1970 for each partition");
            }
            return new AtTimestamps(timestampsMs);
        }
        return switch (value.toLowerCase(Locale.ROOT)) {
            case "earliest" -> new Earliest();
            case "latest" -> new Latest();
            default -> {
                if (!value.startsWith("{")) {
                    throw Errors.wrongValue(
                            name, value, "earliest, latest or offsets as {\"topicA\":{\"0\":23,\"1\":-2}}");
                }
                yield new AtOffsets(selected(name, value, selection));
            }
        };
    }

    /** Offsets of what the query does not read are a mistake. */
    private static SortedMap<TopicPartition, Long> selected(String name, String value, Selection selection) {
        SortedMap<TopicPartition, Long> offsets = OffsetJson.parse(value);
        List<String> foreign = selection.foreign(offsets);
        if (!foreign.isEmpty()) {
            throw new IllegalArgumentException(
                    "Option '" + name + "' names what the query does not read: " + Errors.list(foreign));
        }
        return offsets;
    }

    /** IllegalArgumentException where these are no positions of a batch query, or where it would end before it begins. */
    static void requireBatch(Position starting, Position ending) {
        if (starting instanceof Latest) {
            throw new IllegalArgumentException("starting offset can't be latest for batch queries on raftlake");
        }
        if (ending instanceof Earliest) {
            throw new IllegalArgumentException("ending offset can't be earliest for batch queries on raftlake");
        }
        forbid(starting, OffsetJson.LATEST, "startingOffsets for %s can't be latest for batch queries on raftlake");
        forbid(ending, OffsetJson.EARLIEST, "ending offset for %s can't be earliest for batch queries on raftlake");
        if (starting instanceof AtOffsets start && ending instanceof AtOffsets end) {
            requireOrder(start.offsets(), end.offsets());
        }
        requireTimeOrder(starting, ending);
    }

    private static void forbid(Position position, long offset, String text) {
        if (position instanceof AtOffsets at) {
            at.offsets().forEach((partition, found) -> {
                if (found == offset) {
                    throw new IllegalArgumentException(String.format(text, partition));
                }
            });
        }
    }

    private static void requireOrder(SortedMap<TopicPartition, Long> starting, SortedMap<TopicPartition, Long> ending) {
        if (!starting.keySet().equals(ending.keySet())) {
            throw new IllegalArgumentException("startingOffsets and endingOffsets must name the same partitions");
        }
        starting.forEach((partition, start) -> {
            long end = ending.get(partition);
            if (end >= 0 && start > end) {
                throw Errors.startAfterEnd(partition, start, end);
            }
        });
    }

    private static void requireTimeOrder(Position starting, Position ending) {
        SortedSet<TopicPartition> partitions = new TreeSet<>();
        for (Position each : new Position[] {starting, ending}) {
            if (each instanceof AtTimestamps at) {
                partitions.addAll(at.timestampsMs().keySet());
            }
        }
        requireTimeOrder(time(starting, null), time(ending, null));
        partitions.forEach(each -> requireTimeOrder(time(starting, each), time(ending, each)));
    }

    private static void requireTimeOrder(Long startMs, Long endMs) {
        if (startMs != null && endMs != null && startMs > endMs) {
            throw Errors.startTimeAfterEndTime(startMs, endMs);
        }
    }

    /** Of a partition, or of all of them; null where the position has none. */
    private static Long time(Position position, TopicPartition partition) {
        if (position instanceof AtTimestamp at) {
            return at.timestampMs();
        }
        return position instanceof AtTimestamps at && partition != null ? at.timestampsMs().get(partition) : null;
    }
}
