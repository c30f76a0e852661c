package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.OptionNames;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TierOptions;
import io.raftlake.spark.connector.TopicPartition;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReadMinRows;

/**
 * The plans of one streaming query, batch by batch. Invariants: a batch's end never lies below its start unless the data is
 * proven lost, and a batch that Spark replays from its checkpoint gets the same ranges again.
 *
 * <p>The last one needs care with the first batch of a query that starts at the end of the log. Spark does not keep its start,
 * only its end, so a replay would see another "latest". Therefore such a partition's first batch is empty: it only marks the
 * place. A start by time is such a start where no record is that young yet; a replay may find one, behind the place.
 *
 * <p>In real-time mode a batch has no end before it is over, and Spark writes its end down behind the sink's commit. What is said
 * of the first batch holds there too: it ends at once. See {@link RaftlakeStream}.
 */
final class StreamPlanner {
    /** A query with nothing to read looks for new, deleted and recreated topics this often, and before every batch. */
    private static final long LOOK_AGE_MS_MAX = 1_000;

    private final LogView view;
    private final SourceOptions options;
    private final Planner planner;
    private final LongSupplier nowMs;

    private Positions.Start initial;
    private boolean isFirstPlan = true;
    private final Map<String, String> topicIds = new HashMap<>();

    /** Topics that were created again while this run read them. */
    private final Set<String> recreated = new HashSet<>();

    /** The ends beyond which a query with Trigger.AvailableNow does not read; null for other triggers. */
    private SortedMap<TopicPartition, Long> target;

    private SortedMap<TopicPartition, Long> latest = new TreeMap<>();

    /** Of the last plan: where lost partitions begin anew. */
    private SortedMap<TopicPartition, Long> restarts = new TreeMap<>();

    private boolean isRealTime;

    /** The start of the last plan, and its end; null where the tasks were planned, or planning failed. */
    private SortedMap<TopicPartition, Long> plannedStart;
    private SortedMap<TopicPartition, Long> plannedEnd;

    /** Whether the batch of the last plan is the one that only marks the place. */
    private boolean marksThePlace;
    private Long triggeredAtMs;
    private Long lookedAtMs;

    /** {@code nowMs}: of a clock that only goes forward. */
    StreamPlanner(LogView view, SourceOptions options, Planner planner, LongSupplier nowMs) {
        this.view = view;
        this.options = options;
        this.planner = planner;
        this.nowMs = nowMs;
    }

    /** Where a new query starts; the same answer as often as Spark asks. */
    SortedMap<TopicPartition, Long> initialOffsets() {
        if (initial == null) {
            initial = new Positions(view, options).start();
            noteIds();
        }
        return initial.offsets();
    }

    void prepareAvailableNow() {
        SortedSet<TopicPartition> selected = view.requireSelected();
        noteIds();
        target = view.latest(selected);
    }

    /** Of the last look, whose offsets are asked for. What was noted before stays: its offsets are of the topic before. */
    private void noteIds() {
        view.topicIds().forEach(topicIds::putIfAbsent);
    }

    /** Batches are read for as long as Spark says from now on. IllegalArgumentException for options that bound a batch. */
    void prepareRealTime() {
        String ends = "a batch of real-time mode ends by time";
        requireNone(OptionNames.MAX_OFFSETS, options.offsetsPerTriggerMax(), ends);
        requireNone(OptionNames.MIN_OFFSETS, options.offsetsPerTriggerMin(), ends);
        String tasks = "real-time mode has one task for each partition";
        requireNone(OptionNames.MIN_PARTITIONS, options.partitionsMin(), tasks);
        requireNone(OptionNames.MAX_RECORDS_PER_PARTITION, options.recordsPerPartitionMax(), tasks);
        if (options.tier().mode() == TierOptions.Mode.REMOTE) {
            throw Errors.unsupportedOption(OptionNames.TIER, "real-time mode reads the log");
        }
        isRealTime = true;
    }

    private static void requireNone(String option, Long value, String reason) {
        if (value != null) {
            throw Errors.unsupportedOption(option, reason);
        }
    }

    /** How many partitions the query reads now. */
    int partitions() {
        return view.look().size();
    }

    ReadLimit defaultLimit() {
        if (options.offsetsPerTriggerMax() != null) {
            return ReadLimit.maxRows(options.offsetsPerTriggerMax());
        }
        return options.offsetsPerTriggerMin() == null
                ? ReadLimit.allAvailable() : ReadLimit.minRows(options.offsetsPerTriggerMin(), options.triggerDelayMsMax());
    }

    /** The ends at the last look, of partitions that the query reads. */
    SortedMap<TopicPartition, Long> seenLatest() {
        return latest;
    }

    boolean wasRecreated(String topic) {
        return recreated.contains(topic);
    }

    // --- the end of the next batch -------------------------------------------------------------------------------------

    /** The end of the next batch; {@code start} itself where there is nothing to read. */
    SortedMap<TopicPartition, Long> planEnd(SortedMap<TopicPartition, Long> start, ReadLimit limit) {
        plannedStart = start;
        plannedEnd = null;
        plannedEnd = end(start, limit);
        return plannedEnd;
    }

    private SortedMap<TopicPartition, Long> end(SortedMap<TopicPartition, Long> start, ReadLimit limit) {
        boolean isFirst = isFirstPlan;
        isFirstPlan = false;
        marksThePlace = false;
        SortedMap<TopicPartition, Long> now = null;
        if (isFirst) {
            requireRetained(start);
        } else if (mayBeIdle(start)) {
            now = view.latest(start.keySet());
            if (now.equals(start)) {
                return start;
            }
        }
        latest = endsFor(start, now);
        SortedMap<TopicPartition, Long> ends = new TreeMap<>(latest);
        if (isFirst && initial != null) {
            for (TopicPartition partition : without(initial.lateBound(), movedFrom(start))) {
                if (ends.containsKey(partition) && initial.offsets().get(partition).equals(start.get(partition))) {
                    ends.put(partition, start.get(partition));
                    marksThePlace = true;
                }
            }
        }
        if (limit instanceof ReadAllAvailable) {
            return ends;
        }
        if (!(limit instanceof ReadMaxRows) && !(limit instanceof ReadMinRows)) {
            throw new UnsupportedOperationException("raftlake source does not know the read limit " + limit);
        }
        SortedSet<TopicPartition> added = new TreeSet<>(ends.keySet());
        added.removeAll(start.keySet());
        SortedMap<TopicPartition, Long> begin = view.earliest(added);
        begin.putAll(start);
        if (shallWait(begin, ends)) {
            return start;
        }
        Long max = limit instanceof ReadMaxRows rows ? (Long) rows.maxRows() : options.offsetsPerTriggerMax();
        return max == null ? ends : Ranges.limit(max, begin, ends);
    }

    /** Whether the logs ended where the next batch would start, and the topics were looked at a moment ago. */
    private boolean mayBeIdle(SortedMap<TopicPartition, Long> start) {
        // minOffsetsPerTrigger counts the time without news too.
        boolean mayWait = target == null && !isRealTime && options.offsetsPerTriggerMin() == null;
        return lookedLately() && mayWait && latest.equals(start);
    }

    private boolean lookedLately() {
        return lookedAtMs != null && nowMs.getAsLong() - lookedAtMs < LOOK_AGE_MS_MAX;
    }

    /** Committed ends of all partitions, none below its start. {@code now}: those of some, which were just asked; or null. */
    private SortedMap<TopicPartition, Long> endsFor(
            SortedMap<TopicPartition, Long> start, SortedMap<TopicPartition, Long> now) {
        SortedSet<TopicPartition> assigned = view.look();
        lookedAtMs = nowMs.getAsLong();
        Map<String, String> again = recreatedTopics();
        SortedMap<TopicPartition, Long> ends;
        if (target == null) {
            boolean areAllKnown = now != null && now.keySet().equals(assigned) && again.isEmpty();
            ends = areAllKnown ? now : view.latest(assigned);
        } else {
            ends = availableEnds(start, assigned, again.keySet());
        }
        List<TopicPartition> absent =
                without(start.keySet(), ends.keySet()).stream().filter(options.selection()::names).toList();
        // A node that lags does not know a partition yet that was read: nothing new is read of it now, but what is known to be
        // available. With Trigger.AvailableNow Spark ends the query with the first batch without news.
        SortedMap<TopicPartition, Long> available = target == null ? new TreeMap<>() : target;
        view.present(absent).forEach(partition ->
                ends.put(partition, Math.max(start.get(partition), available.getOrDefault(partition, 0L))));
        reportGone(without(start.keySet(), ends.keySet()));
        return withoutLost(start, ends, again);
    }

    /** With Trigger.AvailableNow. Of a topic that was created again, what it holds now is what is available. */
    private SortedMap<TopicPartition, Long> availableEnds(
            SortedMap<TopicPartition, Long> start, SortedSet<TopicPartition> assigned, Set<String> again) {
        target.keySet().removeIf(partition -> again.contains(partition.topic()));
        target.putAll(view.latest(assigned.stream().filter(each -> again.contains(each.topic())).toList()));
        SortedMap<TopicPartition, Long> ends = new TreeMap<>();
        for (TopicPartition partition : assigned) {
            Long end = target.getOrDefault(partition, start.get(partition));
            if (end != null) {
                ends.put(partition, end);
            }
        }
        return ends;
    }

    /**
     * Ends at or above the start. A replica that lags may name an older end: then the end is the start, and no data is lost.
     * Data is lost where an end is proven to lie below the start, or the name's topic has another id. {@code again}: these
     * topics, with the ids before.
     */
    private SortedMap<TopicPartition, Long> withoutLost(
            SortedMap<TopicPartition, Long> start, SortedMap<TopicPartition, Long> ends, Map<String, String> again) {
        List<TopicPartition> behind =
                ends.keySet().stream().filter(each -> ends.get(each) < start.getOrDefault(each, 0L)).toList();
        SortedMap<TopicPartition, Long> proven = view.provenLatest(behind);
        List<TopicPartition> lost = new ArrayList<>();
        for (TopicPartition partition : ends.keySet()) {
            if (!start.containsKey(partition)) {
                continue;
            }
            if (again.containsKey(partition.topic())) {
                report("Topic " + partition.topic() + " was deleted and created again, offsets of " + partition
                        + " begin anew");
                lost.add(partition);
            } else if (proven.getOrDefault(partition, Long.MAX_VALUE) < start.get(partition)) {
                report(changed(partition, start.get(partition), proven.get(partition)));
                lost.add(partition);
            }
        }
        SortedMap<TopicPartition, Long> found = new TreeMap<>();
        ends.forEach((partition, end) -> found.put(partition, Math.max(end, start.getOrDefault(partition, 0L))));
        found.putAll(beginAnew(lost, start, again));
        return found;
    }

    /**
     * The ends of logs that began anew: their beginnings, so that nothing of them is skipped. A query that stands at the
     * beginning already goes on.
     */
    private SortedMap<TopicPartition, Long> beginAnew(
            List<TopicPartition> lost, SortedMap<TopicPartition, Long> start, Map<String, String> again) {
        SortedMap<TopicPartition, Long> found = new TreeMap<>();
        restarts = view.earliest(lost);
        for (String topic : TopicPartition.topicsOf(without(lost, restarts.keySet()))) {
            // The next look tells again of a topic whose beginning nobody tells yet. The query stays where it is until then.
            restarts.keySet().removeIf(each -> each.topic().equals(topic));
            topicIds.computeIfPresent(topic, again::getOrDefault);
            lost.stream().filter(each -> each.topic().equals(topic)).forEach(each -> found.put(each, start.get(each)));
        }
        movedFrom(start).forEach(partition -> found.put(partition, restarts.get(partition)));
        return found;
    }

    /** Those that begin anew elsewhere than where the query stands. */
    private Set<TopicPartition> movedFrom(SortedMap<TopicPartition, Long> start) {
        return restarts.keySet().stream()
                .filter(each -> !restarts.get(each).equals(start.get(each))).collect(Collectors.toSet());
    }

    private static String changed(TopicPartition partition, long from, long to) {
        return "Partition " + partition + "'s offset was changed from " + from + " to " + to
                + ", some data may have been missed";
    }

    /** Those that have other ids than before, which are returned. */
    private Map<String, String> recreatedTopics() {
        Map<String, String> again = new HashMap<>();
        view.topicIds().forEach((topic, id) -> {
            String before = topicIds.put(topic, id);
            if (before != null && !before.equals(id)) {
                again.put(topic, before);
            }
        });
        recreated.addAll(again.keySet());
        return again;
    }

    /** Before the first batch of a run: what the query is to go on with must still be there. Later its tasks find out. */
    private void requireRetained(SortedMap<TopicPartition, Long> start) {
        SortedSet<TopicPartition> existing = view.look();
        existing.retainAll(start.keySet());
        view.earliest(existing).forEach((partition, earliest) -> {
            if (earliest > start.get(partition)) {
                report("Cannot fetch records in [" + start.get(partition) + ", " + earliest + ") of " + partition
                        + ": the log begins at " + earliest);
            }
        });
    }

    /** minOffsetsPerTrigger: too little is waiting, and not for long enough. */
    private boolean shallWait(SortedMap<TopicPartition, Long> begin, SortedMap<TopicPartition, Long> ends) {
        if (options.offsetsPerTriggerMin() == null || target != null) {
            return false;
        }
        if (ends.entrySet().stream().anyMatch(end -> end.getValue() < begin.getOrDefault(end.getKey(), end.getValue()))) {
            // A log that begins anew is told of once: a later look would go on amid it.
            return false;
        }
        long now = nowMs.getAsLong();
        boolean isDue = triggeredAtMs == null || now - triggeredAtMs >= options.triggerDelayMsMax();
        if (!isDue && Ranges.count(begin, ends) < options.offsetsPerTriggerMin()) {
            return true;
        }
        triggeredAtMs = now;
        return false;
    }

    // --- the tasks of a batch ------------------------------------------------------------------------------------------

    List<PlannedRange> planTasks(SortedMap<TopicPartition, Long> start, SortedMap<TopicPartition, Long> end) {
        if (start.equals(end)) {
            return List.of();
        }
        boolean wasJustPlanned = start.equals(plannedStart) && end.equals(plannedEnd) && lookedLately();
        if (!wasJustPlanned) {
            view.look();
        }
        lookForIds(end.keySet());
        SortedMap<TopicPartition, Long> added = startOfAdded(without(end.keySet(), start.keySet()));
        reportGone(without(start.keySet(), end.keySet()));
        List<OffsetRange> ranges = new ArrayList<>();
        end.forEach((partition, until) -> {
            long begin = start.getOrDefault(partition, added.getOrDefault(partition, until));
            if (until < begin && !onlyMarksThePlace(partition, begin, until)) {
                report(changed(partition, begin, until));
            }
            ranges.add(new OffsetRange(partition, begin, until));
        });
        return planner.tasks(ranges, topicIds, Wanted.ALL);
    }

    /** The tasks of the next batch in real-time mode: one for each partition, from its start on, and without an end. */
    List<PlannedRange> planRealTime(SortedMap<TopicPartition, Long> start) {
        if (!start.equals(plannedStart)) {
            planEnd(start, ReadLimit.allAvailable());
        }
        plannedStart = null;
        lookForIds(latest.keySet());
        SortedMap<TopicPartition, Long> added = startOfAdded(without(latest.keySet(), start.keySet()));
        List<OffsetRange> ranges = new ArrayList<>();
        for (TopicPartition partition : latest.keySet()) {
            Long begin = restarts.getOrDefault(partition, start.getOrDefault(partition, added.get(partition)));
            if (begin != null) {
                ranges.add(new OffsetRange(partition, begin, marksThePlace ? begin : OffsetRange.OPEN));
            }
        }
        return planner.realTime(ranges, topicIds);
    }

    /**
     * Those of the tasks in real-time mode whose topics are read on from where the checkpoint has them. Where a topic begins
     * anew, the checkpoint has old offsets until the sink has committed: a restart before that has to learn which topic they
     * are of.
     */
    List<PlannedRange> readOn(List<PlannedRange> tasks) {
        List<String> anew = TopicPartition.topicsOf(restarts.keySet());
        return tasks.stream().filter(task -> !anew.contains(task.range().at().topic())).toList();
    }

    /** Asks for the topics of partitions that no look of this run has named: a node that lags may have answered it. */
    private void lookForIds(Collection<TopicPartition> partitions) {
        List<String> unknown = new ArrayList<>(TopicPartition.topicsOf(partitions));
        unknown.removeAll(topicIds.keySet());
        view.lookFor(unknown);
        view.topicIds().forEach(topicIds::putIfAbsent);
    }

    private static SortedSet<TopicPartition> without(Collection<TopicPartition> partitions, Set<TopicPartition> others) {
        SortedSet<TopicPartition> left = new TreeSet<>(partitions);
        left.removeAll(others);
        return left;
    }

    private SortedMap<TopicPartition, Long> startOfAdded(SortedSet<TopicPartition> added) {
        SortedMap<TopicPartition, Long> earliest = added.isEmpty() ? new TreeMap<>() : view.earliest(added);
        // Without its start a partition would be passed over.
        view.requireTold(TopicPartition.topicsOf(without(added, earliest.keySet())));
        earliest.forEach((partition, offset) -> {
            if (offset != 0) {
                report("Added partition " + partition + " starts from " + offset
                        + " instead of 0. Some data may have been missed");
            }
        });
        return earliest;
    }

    /**
     * A replayed first batch: its end is where the log ended then, its start where the log ends now, or where a record of the
     * asked time has come since. The log still holds what followed.
     */
    private boolean onlyMarksThePlace(TopicPartition partition, long begin, long until) {
        if (initial == null || !initial.maybeLateBound().contains(partition)
                || !Long.valueOf(begin).equals(initial.offsets().get(partition))) {
            return false;
        }
        return view.earliest(List.of(partition)).getOrDefault(partition, until) <= until;
    }

    /** Partitions that the checkpoint has, and the query does not read any more. */
    private void reportGone(SortedSet<TopicPartition> gone) {
        List<TopicPartition> unnamed = gone.stream().filter(each -> !options.selection().names(each)).toList();
        if (!unnamed.isEmpty()) {
            report(Errors.noLongerNamed(options.selection().option(), TopicPartition.topicsOf(unnamed)));
        }
        List<String> left = gone.stream().filter(each -> !unnamed.contains(each)).map(String::valueOf).toList();
        if (!left.isEmpty()) {
            report(String.join(", ", left) + " are gone. Some data may have been missed");
        }
    }

    private void report(String message) {
        DataLoss.report(message, options.failOnDataLoss());
    }
}
