package io.raftlake.spark.connector;

import java.io.Serializable;
import java.util.List;
import java.util.Map;

/**
 * The options of a query, parsed once on the driver. Nothing below this class sees a raw option.
 *
 * @param starting null: the default, which is latest for a stream and earliest for a batch query
 * @param ending null: latest
 * @param startsAtLatestWithoutMatch where no record is as late as a starting timestamp: begin at the end, or refuse
 * @param offsetsPerTriggerMax null: no limit
 * @param offsetsPerTriggerMin null: no limit
 * @param partitionsMin null: a task for each range
 * @param recordsPerPartitionMax null: no limit
 * @param isLinearizable the end of a batch is proven by ReadOffset (KIP-650); else it is a replica's high watermark
 * @param readsCommitted only what transactions have committed, up to the first one that is not decided
 * @param positionIntervalMs how often a stream writes down how far it is; 0: never
 */
public record SourceOptions(
        Quorum quorum,
        Selection selection,
        Position starting,
        Position ending,
        boolean startsAtLatestWithoutMatch,
        Long offsetsPerTriggerMax,
        Long offsetsPerTriggerMin,
        long triggerDelayMsMax,
        Long partitionsMin,
        Long recordsPerPartitionMax,
        boolean failOnDataLoss,
        boolean includeHeaders,
        boolean isLinearizable,
        TierOptions tier,
        boolean readsCommitted,
        long positionIntervalMs)
        implements Serializable {
    private static final long DELAY_MS_DEFAULT = 15 * 60_000;
    private static final long POSITION_INTERVAL_MS_DEFAULT = 5_000;

    /** IllegalArgumentException that names the option. */
    public static SourceOptions of(Map<String, String> raw) {
        RawOptions options = new RawOptions(raw, OptionNames.SOURCE, OptionNames.SOURCE_WITHOUT_EFFECT,
                OptionNames.TIER_STORAGE_PREFIX);
        String isolation = options.choice(
                OptionNames.ISOLATION_LEVEL, List.of("read_committed", "read_uncommitted"), "read_committed");
        Selection selection = Selection.of(options);
        String strategy = options.choice(OptionNames.TIMESTAMP_STRATEGY, List.of("error", "latest"), "error");
        Long max = options.positive(OptionNames.MAX_OFFSETS);
        Long min = options.positive(OptionNames.MIN_OFFSETS);
        if (min != null && max != null && min > max) {
            throw new IllegalArgumentException("The value of minOffsetsPerTrigger(" + min
                    + ") is higher than the maxOffsetsPerTrigger(" + max + ").");
        }
        String consistency =
                options.choice(OptionNames.CONSISTENCY, List.of("committed", "linearizable"), "committed");
        return new SourceOptions(
                Quorum.of(options, Quorum.Patience.ofSource(options)),
                selection,
                Position.of(options, OptionNames.STARTS, selection),
                Position.of(options, OptionNames.ENDS, selection),
                strategy.equals("latest"),
                max,
                min,
                options.durationMs(OptionNames.MAX_TRIGGER_DELAY, DELAY_MS_DEFAULT),
                options.positive(OptionNames.MIN_PARTITIONS),
                options.positive(OptionNames.MAX_RECORDS_PER_PARTITION),
                options.flag(OptionNames.FAIL_ON_DATA_LOSS, true),
                options.flag(OptionNames.INCLUDE_HEADERS, false),
                consistency.equals("linearizable"),
                TierOptions.of(options),
                isolation.equals("read_committed"),
                options.count(OptionNames.POSITION_INTERVAL, POSITION_INTERVAL_MS_DEFAULT));
    }

    /** IllegalArgumentException for what only a batch query can have. */
    public SourceOptions forStream() {
        if (ending != null) {
            boolean isTime = ending instanceof Position.AtTimestamp || ending instanceof Position.AtTimestamps;
            throw new IllegalArgumentException(
                    "ending " + (isTime ? "timestamp" : "offset") + " not valid in streaming queries");
        }
        return between(quorum, starting == null ? new Position.Latest() : starting, null);
    }

    /** IllegalArgumentException for a start at the end, an end at the start, and an end before the start. */
    public SourceOptions forBatch() {
        SourceOptions filled = between(quorum, starting == null ? new Position.Earliest() : starting,
                ending == null ? new Position.Latest() : ending);
        Position.requireBatch(filled.starting, filled.ending);
        return filled;
    }

    /** The same of another quorum, or with other patience. */
    public SourceOptions with(Quorum other) {
        return between(other, starting, ending);
    }

    private SourceOptions between(Quorum other, Position start, Position end) {
        return new SourceOptions(other, selection, start, end, startsAtLatestWithoutMatch, offsetsPerTriggerMax,
                offsetsPerTriggerMin, triggerDelayMsMax, partitionsMin, recordsPerPartitionMax, failOnDataLoss, includeHeaders,
                isLinearizable, tier, readsCommitted, positionIntervalMs);
    }
}
