package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.query.QueryRun;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * What Spark drives of a streaming query: questions and answers of {@link StreamPlanner}.
 *
 * <p>In real-time mode Spark 4.2 asks for the latest offset, plans tasks from a start on, and stops them after a time. Then the
 * sink commits, the offsets that the tasks tell are merged and written to {@code offsets/N}, and {@code commits/N} follows. A
 * restart removes an {@code offsets/N} that has no {@code commits/N}. So a query that dies anywhere before {@code commits/N} reads
 * batch N again from its start, up to another end: the rows that the sink has of it come once more, among others.
 */
final class RaftlakeStream
        implements MicroBatchStream, SupportsTriggerAvailableNow, SupportsRealTimeMode, ReportsSourceMetrics {
    /** One try to write how far the query is, in ms: nothing waits for it. */
    private static final long POSITION_TRY_MS = 5_000;

    /** The name of the query stands in front of its id there, where it has one. */
    private static final String DESCRIPTION = "spark.job.description";

    private static final long NS_PER_MS = 1_000_000;

    /** Before the next batch where there is nothing to read from: Spark would start one batch after another. */
    private static final long NO_PARTITION_PAUSE_MS = 1_000;

    private final SourceOptions options;
    private final PartitionReaderFactory readers;
    private final PartitionReaderFactory realTimeReaders;
    private final LogReads client;
    private final StreamPlanner planner;
    private TopicNotes notes;
    private PositionKeeper position;
    private boolean isRealTime;
    private volatile long askedNs;
    private volatile boolean hasTasks;

    /** Those that the tasks of the batch in real-time mode read. */
    private List<PlannedRange> reading = List.of();

    RaftlakeStream(SourceOptions options, LogReads client, LogView view, Planner tasks, PartitionReaderFactory readers,
            PartitionReaderFactory realTimeReaders) {
        this.options = options;
        this.client = client;
        this.readers = readers;
        this.realTimeReaders = realTimeReaders;
        this.planner = new StreamPlanner(view, options, tasks, () -> System.nanoTime() / NS_PER_MS);
    }

    @Override
    public Offset initialOffset() {
        return new RaftlakeOffset(planner.initialOffsets());
    }

    @Override
    public Offset deserializeOffset(String json) {
        return RaftlakeOffset.parse(json);
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        planner.prepareAvailableNow();
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return planner.defaultLimit();
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("Spark asks for the latest offset with a limit");
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        RaftlakeOffset from = RaftlakeOffset.of(start);
        finished(from.offsets());
        long begunAtNs = System.nanoTime();
        SortedMap<TopicPartition, Long> end = planner.planEnd(from.offsets(), limit);
        askedNs = System.nanoTime() - begunAtNs;
        return end.equals(from.offsets()) ? from : new RaftlakeOffset(end);
    }

    @Override
    public Offset reportLatestOffset() {
        return planner.seenLatest().isEmpty() ? null : new RaftlakeOffset(planner.seenLatest());
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        List<PlannedRange> tasks =
                planner.planTasks(RaftlakeOffset.of(start).offsets(), RaftlakeOffset.of(end).offsets());
        note(tasks);
        hasTasks = true;
        return tasks.toArray(InputPartition[]::new);
    }

    /** Compares the topics with those that the query has read before a restart. */
    private void note(List<PlannedRange> tasks) {
        String query = QueryRun.query(SparkContext.getOrCreate()).orElse(null);
        if (query == null) {
            return;
        }
        Map<String, String> ids = new TreeMap<>();
        tasks.stream()
                .filter(task -> task.topicId() != null)
                .forEach(task -> ids.put(task.range().at().topic(), task.topicId()));
        Asking.patiently(options.quorum().patience(), "topics that the query has read", () -> {
            for (Map.Entry<String, String> topic : ids.entrySet()) {
                notes(query).note(topic.getKey(), topic.getValue(), planner.wasRecreated(topic.getKey()));
            }
            return null;
        });
    }

    private TopicNotes notes(String query) throws IOException {
        if (notes == null) {
            long askMs = options.quorum().patience().askMs();
            notes = new TopicNotes(Sources.keys(client, options.quorum(), askMs), query, options.failOnDataLoss());
        }
        return notes;
    }

    /** What lies below is read and committed by Spark, and is told to who asks for the lag of the query. */
    private void finished(SortedMap<TopicPartition, Long> offsets) {
        if (position == null && options.positionIntervalMs() > 0) {
            QueryPosition.Source source = source();
            if (source == null) {
                return;
            }
            position = new PositionKeeper(
                    () -> new PositionWriter(Sources.keys(client, options.quorum(), POSITION_TRY_MS), source,
                            () -> System.nanoTime() / NS_PER_MS)::write,
                    options.positionIntervalMs());
            position.start();
        }
        // None where Spark does not know yet how far a batch went.
        if (position != null && !offsets.isEmpty()) {
            position.finished(offsets);
        }
    }

    /** Null where the calling thread is that of no query. */
    private QueryPosition.Source source() {
        SparkContext context = SparkContext.getOrCreate();
        Optional<String> query = QueryRun.query(context);
        return QueryRun.run(context).map(run -> QueryPosition.Source.here(query.get(), run,
                context.getLocalProperty(DESCRIPTION), QueryPosition.reads(options.selection()))).orElse(null);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return isRealTime ? realTimeReaders : readers;
    }

    // --- real-time mode ----------------------------------------------------------------------------------------------

    boolean isRealTime() {
        return isRealTime;
    }

    /** What the mode cannot do is said here, before anything is read. */
    @Override
    public void prepareForRealTimeMode() {
        planner.prepareRealTime();
        requireSlots(planner.partitions());
        isRealTime = true;
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start) {
        reading = planner.planRealTime(RaftlakeOffset.of(start).offsets());
        requireSlots(reading.size());
        note(planner.readOn(reading));
        if (reading.isEmpty()) {
            Asking.pause(NO_PARTITION_PAUSE_MS);
        }
        return reading.toArray(InputPartition[]::new);
    }

    private void requireSlots(int partitions) {
        SparkContext context = SparkContext.getOrCreate();
        RealTimeSlots.require(context, QueryRun.run(context).orElse(""), this, partitions);
    }

    /** Where all tasks of a batch together have stopped. */
    @Override
    public Offset mergeOffsets(PartitionOffset[] told) {
        return merged(told, reading.stream().map(task -> task.range().at()).toList());
    }

    static RaftlakeOffset merged(PartitionOffset[] told, List<TopicPartition> read) {
        SortedMap<TopicPartition, Long> offsets = new TreeMap<>();
        for (PartitionOffset each : told) {
            RealTimeOffset offset = (RealTimeOffset) each;
            offsets.put(offset.at(), offset.next());
        }
        List<TopicPartition> silent = read.stream().filter(partition -> !offsets.containsKey(partition)).toList();
        if (!silent.isEmpty()) {
            throw new IllegalStateException("no task has told how far it has read " + silent);
        }
        return new RaftlakeOffset(offsets);
    }

    // --- what is told ------------------------------------------------------------------------------------------------

    /**
     * How far the query is behind the ends of the last look, in offsets: by partition, and altogether. How long that look took, in
     * which the quorum proves that nothing acknowledged before is missing. And what the tasks of the batch have fetched, if any.
     */
    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
        Map<String, String> told = new TreeMap<>();
        if (latestConsumed.isEmpty()) {
            return told;
        }
        SortedMap<TopicPartition, Long> consumed = RaftlakeOffset.of(latestConsumed.get()).offsets();
        // Spark asks once the batch is over, be the next one far away.
        finished(consumed);
        long total = 0;
        long largest = 0;
        for (Map.Entry<TopicPartition, Long> end : planner.seenLatest().entrySet()) {
            long lag = Math.max(0, end.getValue() - consumed.getOrDefault(end.getKey(), 0L));
            told.put("lag." + end.getKey(), Long.toString(lag));
            total += lag;
            largest = Math.max(largest, lag);
        }
        told.put("lag", Long.toString(total));
        told.put("lagMax", Long.toString(largest));
        told.put("endsMs", Long.toString(askedNs / NS_PER_MS));
        if (hasTasks) {
            hasTasks = false;
            String query = QueryRun.query(SparkContext.getOrCreate()).orElse(null);
            BatchTotals.of(query, this).forEach((name, count) -> told.put(name, Long.toString(count)));
        }
        return told;
    }

    /** As the progress of the query shows it. */
    @Override
    public String toString() {
        return RaftlakeScan.describe(options);
    }

    @Override
    public void commit(Offset end) {
        // The checkpoint has it, and Spark has told it before: as the start of the next batch, and as that of its metrics.
    }

    @Override
    public void stop() {
        // Connections are those of the process.
        if (position != null) {
            position.close();
        }
    }
}
