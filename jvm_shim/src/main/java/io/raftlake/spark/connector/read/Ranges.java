package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.TopicPartition;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * Which offsets one batch reads and how they are cut into tasks: arithmetic only, in whole numbers. The rules are those of
 * Spark's Kafka connector and of {@code pyspark_raftlake/ranges.py}.
 */
final class Ranges {
    private Ranges() {}

    /**
     * End offsets for a batch of about {@code max} offsets: each partition gets its share of what is waiting, rounded down, but
     * one offset at least. Partitions without a start or without news keep their end.
     */
    static SortedMap<TopicPartition, Long> limit(
            long max, Map<TopicPartition, Long> start, SortedMap<TopicPartition, Long> end) {
        Map<TopicPartition, Long> waiting = new TreeMap<>();
        start.forEach((partition, begin) -> {
            long size = end.getOrDefault(partition, begin) - begin;
            if (size > 0) {
                waiting.put(partition, size);
            }
        });
        long total = waiting.values().stream().mapToLong(Long::longValue).sum();
        SortedMap<TopicPartition, Long> limited = new TreeMap<>(end);
        waiting.forEach((partition, size) -> {
            long share = Math.max(1, proportion(max, size, total));
            limited.put(partition, Math.min(end.get(partition), start.get(partition) + share));
        });
        return limited;
    }

    /** count * size / total, rounded down. */
    private static long proportion(long count, long size, long total) {
        return BigInteger.valueOf(count).multiply(BigInteger.valueOf(size)).divide(BigInteger.valueOf(total)).longValueExact();
    }

    /** Offsets between two positions, over the partitions that have both. */
    static long count(Map<TopicPartition, Long> start, Map<TopicPartition, Long> end) {
        return start.entrySet().stream()
                .mapToLong(each -> Math.max(0, end.getOrDefault(each.getKey(), each.getValue()) - each.getValue()))
                .sum();
    }

    /**
     * The tasks of a batch: empty ranges dropped, none longer than {@code recordsMax}, and about {@code partitionsMin} of them.
     * Where there are fewer, the large ranges are split in proportion to their size; a range whose share is a single task stays
     * whole, and does not count in the shares of the others. Null is without a limit.
     */
    static List<OffsetRange> split(List<OffsetRange> ranges, Long partitionsMin, Long recordsMax) {
        List<OffsetRange> pieces = new ArrayList<>();
        for (OffsetRange range : ranges) {
            if (range.size() > 0) {
                long parts = recordsMax == null ? 1 : (range.size() + recordsMax - 1) / recordsMax;
                pieces.addAll(cut(range, parts));
            }
        }
        if (partitionsMin == null || pieces.size() >= partitionsMin) {
            return pieces;
        }
        long total = pieces.stream().mapToLong(OffsetRange::size).sum();
        List<OffsetRange> large =
                pieces.stream().filter(piece -> share(piece.size(), total, partitionsMin) > 1).toList();
        long largeTotal = large.stream().mapToLong(OffsetRange::size).sum();
        long largeParts = Math.max(1, partitionsMin - (pieces.size() - large.size()));
        List<OffsetRange> split = new ArrayList<>();
        for (OffsetRange piece : pieces) {
            split.addAll(cut(piece, large.contains(piece) ? share(piece.size(), largeTotal, largeParts) : 1));
        }
        return split;
    }

    /** size / total of the parts, rounded half up, at least one. */
    private static long share(long size, long total, long parts) {
        BigInteger twice = BigInteger.valueOf(2).multiply(BigInteger.valueOf(size)).multiply(BigInteger.valueOf(parts));
        return Math.max(1, twice.add(BigInteger.valueOf(total)).divide(BigInteger.valueOf(2 * total)).longValueExact());
    }

    /** So many pieces whose sizes differ by at most one; fewer where there are not enough offsets. */
    static List<OffsetRange> cut(OffsetRange range, long parts) {
        List<OffsetRange> pieces = new ArrayList<>();
        long start = range.start();
        long count = Math.min(parts, range.size());
        for (long part = 0; part < count; part++) {
            long end = start + (range.end() - start) / (count - part);
            pieces.add(range.within(start, end));
            start = end;
        }
        return pieces;
    }
}
