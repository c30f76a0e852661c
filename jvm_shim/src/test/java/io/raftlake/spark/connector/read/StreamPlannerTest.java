package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.log.RangeFetches;
import java.util.List;
import java.util.SortedMap;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class StreamPlannerTest extends PlannerKit {
    @Test
    void fromTheBeginningToTheEnd() {
        view.log(0, 5, 10);
        view.log(1, 0, 3_000);
        plan("startingOffsets", "earliest");
        assertEquals(at(5, 0), planner.initialOffsets());
        assertEquals(at(10, 3_000), end(at(5, 0)));
        List<PlannedRange> tasks = planner.planTasks(at(5, 0), at(10, 3_000));
        assertEquals(List.of(RangeFetches.LEADER, 2), tasks.stream().map(PlannedRange::nodeId).toList());
        assertEquals(List.of("id-1", "id-1"), tasks.stream().map(PlannedRange::topicId).toList());
        assertEquals(List.of(), planner.planTasks(at(10, 3_000), at(10, 3_000)));
        assertEquals("{\"t\":{\"0\":10,\"1\":3000}}", OffsetJson.of(planner.seenLatest()));
    }

    @Test
    void theFirstBatchFromLatestOnlyMarksThePlace() {
        view.log(0, 0, 10);
        plan();
        SortedMap<TopicPartition, Long> start = planner.initialOffsets();
        view.log(0, 0, 15);
        assertEquals(at(10), end(start));
        assertEquals(at(15), end(start));
        // Spark replays the first batch after a restart: its end is older than where the log ends now.
        plan();
        assertEquals(at(15), planner.initialOffsets());
        assertEquals(List.of(), ranges(at(15), at(10)));
        view.log(0, 12, 15);
        assertTrue(lost(() -> ranges(at(15), at(10))).startsWith(
                "Partition t-0's offset was changed from 15 to 10, some data may have been missed"));
    }

    @Test
    void aStartByTimeWithoutAMatchMarksThePlaceToo() {
        view.log(0, 0, 10);
        plan("startingTimestamp", "7", "startingOffsetsByTimestampStrategy", "latest");
        assertEquals(at(10), planner.initialOffsets());
        view.log(0, 0, 12);
        assertEquals(at(10), end(at(10)));
        view.youngFrom = 11;
        plan();
        assertEquals(at(11), planner.initialOffsets());
        assertEquals(List.of(), ranges(at(11), at(10)));
    }

    @Test
    void aReplicaThatLagsIsNoLostData() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest");
        end(at(5));
        view.log(0, 0, 8);
        view.proven.put(new TopicPartition("t", 0), 10L);
        assertEquals(at(10), end(at(10)));
        view.proven.clear();
        assertTrue(lost(() -> end(at(10))).startsWith("Partition t-0's offset was changed from 10 to 8, some data"));
    }

    @Test
    void aTopicThatWasCreatedAgainBeginsAnew() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        planner.initialOffsets();
        assertEquals(at(10), end(at(0)));
        view.create("id-2");
        view.log(0, 2, 20);
        assertEquals(at(2), end(at(10)), "not from offset 10 of the new topic");
        assertTrue(planner.wasRecreated("t"));
        raw.put("failOnDataLoss", "true");
        view.create("id-1");
        plan();
        planner.initialOffsets();
        view.create("id-2");
        assertTrue(lost(() -> end(at(10))).startsWith("Topic t was deleted and created again, offsets of t-0 begin anew"));
    }

    @Test
    void anEmptyTopicThatWasCreatedAgainBeforeTheFirstBatchMarksThePlaceToo() {
        view.log(0, 0, 0);
        plan("failOnDataLoss", "false");
        assertEquals(at(0), planner.initialOffsets());
        view.create("id-2");
        view.log(0, 0, 50);
        assertEquals(at(0), end(at(0)));
        view.log(0, 0, 80);
        // Spark replays the first batch after a restart: nothing of the new topic may be passed over by it.
        plan();
        assertEquals(at(80), planner.initialOffsets());
        assertEquals(List.of(), ranges(at(80), at(0)));
        nowMs += 1_000;
        assertEquals(at(80), end(at(0)));
        assertEquals(List.of("[0, 80) of t-0"), ranges(at(0), at(80)));
    }

    @Test
    void whatRetentionRemovedIsLostData() {
        view.log(0, 7, 10);
        plan("startingOffsets", "earliest");
        assertTrue(lost(() -> end(at(3))).startsWith("Cannot fetch records in [3, 7) of t-0: the log begins at 7. Some data"));
    }

    @Test
    void partitionsThatComeAndGo() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest");
        end(at(10));
        nowMs += 1_000;
        view.log(1, 0, 4);
        assertEquals(at(10, 4), end(at(10)));
        assertEquals(List.of("[0, 4) of t-1"), ranges(at(10), at(10, 4)));
        view.log(1, 2, 4);
        assertTrue(lost(() -> ranges(at(10), at(10, 4))).startsWith("Added partition t-1 starts from 2 instead of 0."));
        view.ends.remove(new TopicPartition("t", 1));
        nowMs += 1_000;
        assertTrue(lost(() -> end(at(10, 4))).startsWith("t-1 are gone. Some data may have been missed"));
        raw.remove("subscribe");
        plan("assign", "{\"t\":[0]}");
        assertTrue(lost(() -> ranges(at(9, 4), at(10))).startsWith(
                "Option 'assign' was changed: it no longer names all of t, which the checkpoint of this query has read."));
    }

    @Test
    void anIdleQueryLooksOnceASecond() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest");
        end(at(10));
        int looks = view.looks;
        nowMs += 999;
        assertEquals(at(10), end(at(10)));
        assertEquals(looks, view.looks);
        nowMs++;
        assertEquals(at(10), end(at(10)));
        assertEquals(looks + 1, view.looks);
    }

    /** Of the end of a batch and its tasks: how often topics were looked at, and ends asked for. */
    private List<Integer> questions(SortedMap<TopicPartition, Long> start, SortedMap<TopicPartition, Long> expected) {
        int looks = view.looks;
        int asked = view.asked;
        assertEquals(expected, end(start));
        planner.planTasks(start, expected);
        return List.of(view.looks - looks, view.asked - asked);
    }

    @Test
    void aBatchLooksOnceAtTopicsAndAsksOnceForEnds() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest");
        end(at(0));
        view.log(0, 0, 12);
        assertEquals(List.of(1, 1), questions(at(10), at(12)));
        // A partition that is new has to be asked for.
        view.log(0, 0, 13);
        view.log(1, 0, 4);
        assertEquals(List.of(1, 2), questions(at(12), at(13, 4)));
        assertEquals(List.of("[0, 4) of t-1", "[12, 13) of t-0"), ranges(at(12), at(13, 4)).stream().sorted().toList());
    }

    @Test
    void theTasksOfAnotherBatchThanTheOneThatWasJustPlannedNeedALook() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest");
        end(at(0));
        int looks = view.looks;
        ranges(at(0), at(10));
        assertEquals(looks, view.looks);
        ranges(at(0), at(9));
        assertEquals(looks + 1, view.looks, "another end");
        ranges(at(1), at(10));
        assertEquals(looks + 2, view.looks, "another start");
        nowMs += 1_000;
        ranges(at(0), at(10));
        assertEquals(looks + 3, view.looks, "a second ago");
    }

    @Test
    void endsOfATopicThatWasCreatedAgainAreAskedForAnew() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        planner.initialOffsets();
        end(at(0));
        int asked = view.asked;
        view.create("id-2");
        view.log(0, 2, 20);
        assertEquals(at(2), end(at(10)));
        assertEquals(asked + 2, view.asked, "the ends from before the look may be those of either topic");
    }

    @Test
    void limits() {
        view.log(0, 0, 100);
        view.log(1, 0, 300);
        plan("startingOffsets", "earliest", "maxOffsetsPerTrigger", "100");
        assertEquals(at(25, 75), end(at(0, 0)));
        assertThrows(UnsupportedOperationException.class, () -> planner.planEnd(at(0, 0), ReadLimit.maxFiles(3)));
        assertEquals(at(100, 300), planner.planEnd(at(0, 0), ReadLimit.allAvailable()));
    }

    @Test
    void tooLittleIsWaitedFor() {
        view.log(0, 0, 3);
        plan("startingOffsets", "earliest", "minOffsetsPerTrigger", "10", "maxTriggerDelay", "5s");
        assertEquals(at(3), end(at(0)), "the first batch does not wait");
        view.log(0, 0, 9);
        assertEquals(at(3), end(at(3)));
        nowMs += 4_999;
        assertEquals(at(3), end(at(3)));
        nowMs++;
        assertEquals(at(9), end(at(3)));
        view.log(0, 0, 19);
        assertEquals(at(19), end(at(9)));
    }

    @Test
    void aTopicThatWasCreatedAgainIsNotWaitedFor() {
        view.log(0, 0, 100);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false", "minOffsetsPerTrigger", "50", "maxTriggerDelay", "10m");
        planner.initialOffsets();
        assertEquals(at(100), end(at(0)));
        view.create("id-2");
        view.log(0, 0, 10);
        assertEquals(at(0), end(at(100)), "a later look would go on at 100");
        assertEquals(at(0), end(at(0)), "too little is waiting");
        view.log(0, 0, 160);
        assertEquals(at(160), end(at(0)));
    }

    @Test
    void anEndAtTheStartIsWaitedFor() {
        view.log(0, 0, 100);
        view.log(1, 0, 100);
        plan("startingOffsets", "earliest", "minOffsetsPerTrigger", "50", "maxTriggerDelay", "10m");
        end(at(0, 0));
        view.log(1, 0, 149);
        assertEquals(at(100, 100), end(at(100, 100)));
        view.log(1, 0, 150);
        assertEquals(at(100, 150), end(at(100, 100)));
    }

    @Test
    void aPartitionThatALaggingNodeDoesNotKnowIsNotGone() {
        for (String fail : List.of("true", "false")) {
            view.log(0, 0, 5);
            view.log(1, 0, 7);
            plan("startingOffsets", "earliest", "failOnDataLoss", fail);
            end(at(0, 0));
            view.untold.add(new TopicPartition("t", 1));
            view.log(0, 0, 6);
            view.log(1, 0, 9);
            nowMs += 1_000;
            assertEquals(at(6, 7), end(at(5, 7)));
            view.untold.clear();
            nowMs += 1_000;
            assertEquals(at(6, 9), end(at(6, 7)));
        }
    }

    @Test
    void theTasksOfATopicWithoutAnIdAskForIt() {
        view.log(0, 0, 5);
        plan("startingOffsets", "earliest");
        ranges(at(0), at(5));
        assertEquals(List.of("t"), view.lookedFor, "a replayed batch: the look may have been answered by a node that lags");
        ranges(at(0), at(5));
        assertEquals(List.of("t"), view.lookedFor);
    }

    @Test
    void whatIsAvailableNowOfATopicThatWasCreatedAgainIsWhatItHolds() {
        view.log(0, 0, 100);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false", "maxOffsetsPerTrigger", "50");
        planner.initialOffsets();
        planner.prepareAvailableNow();
        assertEquals(at(50), end(at(0)));
        view.create("id-2");
        view.log(0, 0, 10);
        assertEquals(at(0), end(at(50)));
        assertEquals(at(10), end(at(0)));
        view.log(0, 0, 20);
        assertEquals(at(10), end(at(10)), "what came later is not available now");
    }

    @Test
    void availableNowNoticesALogThatBeginsAnew() {
        for (long held : new long[] {99, 100, 101}) {
            view.log(0, 0, held);
            plan("startingOffsets", "earliest", "failOnDataLoss", "false");
            planner.prepareAvailableNow();
            assertEquals(at(held < 100 ? 0 : held), end(at(100)), "ends at " + held);
        }
    }

    @Test
    void availableNowEndsWhereTheLogsEndedAsItBegan() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest");
        planner.prepareAvailableNow();
        view.log(0, 0, 20);
        view.log(1, 0, 5);
        assertEquals(at(10), end(at(0)));
        assertEquals(at(12), end(at(12)));
    }

    @Test
    void realTimeModeReadsEachPartitionOn() {
        view.log(0, 0, 3_000);
        view.log(1, 0, 4);
        plan("startingOffsets", "earliest");
        planner.prepareRealTime();
        assertEquals(2, planner.partitions());
        end(planner.initialOffsets());
        List<PlannedRange> tasks = planner.planRealTime(at(0, 0));
        assertEquals(List.of("t-0 from offset 0 on", "t-1 from offset 0 on"),
                tasks.stream().map(task -> task.range().toString()).toList());
        assertEquals(List.of(RangeFetches.LEADER, RangeFetches.LEADER), tasks.stream().map(PlannedRange::nodeId).toList());
        assertEquals(List.of("id-1", "id-1"), tasks.stream().map(PlannedRange::topicId).toList());
        assertEquals(List.of("t-0 from offset 3000 on", "t-1 from offset 4 on"), realTime(at(3_000, 4)));
        view.log(2, 0, 7);
        List<String> three = List.of("t-0 from offset 3000 on", "t-1 from offset 4 on", "t-2 from offset 0 on");
        assertEquals(three, realTime(at(3_000, 4)));
        view.log(3, 2, 7);
        assertTrue(lost(() -> realTime(at(3_000, 4, 7))).startsWith("Added partition t-3 starts from 2 instead of 0."));
    }

    @Test
    void aFirstBatchOfRealTimeModeFromLatestOnlyMarksThePlace() {
        view.log(0, 0, 10);
        plan();
        planner.prepareRealTime();
        SortedMap<TopicPartition, Long> start = planner.initialOffsets();
        view.log(0, 0, 15);
        assertEquals(List.of("[10, 10) of t-0"), realTime(start));
        assertEquals(List.of("t-0 from offset 10 on"), realTime(start));
        // A restart has offsets of its checkpoint.
        plan();
        planner.prepareRealTime();
        assertEquals(List.of("t-0 from offset 10 on"), realTime(at(10)));
    }

    @Test
    void realTimeModeReadsATopicThatWasCreatedAgainFromItsBeginning() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        planner.prepareRealTime();
        planner.initialOffsets();
        realTime(at(10));
        view.create("id-2");
        view.log(0, 2, 20);
        assertEquals(List.of("t-0 from offset 2 on"), realTime(at(10)), "not from offset 10 of the new topic");
        assertEquals(List.of("t-0 from offset 12 on"), realTime(at(12)), "only once");
        view.log(0, 5, 8);
        view.proven.put(new TopicPartition("t", 0), 8L);
        assertEquals(List.of("t-0 from offset 5 on"), realTime(at(12)), "a log that lost its end");
    }

    @Test
    void realTimeModeHasNoBoundsOfBatches() {
        List<String> bounds =
                List.of("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition");
        for (String option : bounds) {
            plan(option, "5");
            String told = assertThrows(IllegalArgumentException.class, planner::prepareRealTime).getMessage();
            assertTrue(told.startsWith("Option '" + option + "' is not supported: "), told);
            raw.remove(option);
        }
        plan("tier", "remote");
        assertEquals("Option 'tier' is not supported: real-time mode reads the log",
                assertThrows(IllegalArgumentException.class, planner::prepareRealTime).getMessage());
    }
}
