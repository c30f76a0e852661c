package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import java.util.List;
import java.util.SortedMap;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Topics that are created again, and nodes that lag behind it: each record is read once, and none is passed over. */
@Tag("memory")
class StreamPlannerLagTest extends PlannerKit {
    private static final TopicPartition T0 = new TopicPartition("t", 0);
    private static final TopicPartition T1 = new TopicPartition("t", 1);

    private SortedMap<TopicPartition, Long> endLater(SortedMap<TopicPartition, Long> start) {
        nowMs += 1_000;
        return end(start);
    }

    private static List<String> idsOf(List<PlannedRange> tasks) {
        return tasks.stream().map(PlannedRange::topicId).toList();
    }

    @Test
    void aLaggingNodeThatNamesTheOldTopicIsNotBelieved() {
        view.log(0, 0, 5);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        planner.initialOffsets();
        end(at(0));
        view.create("id-2");
        view.log(0, 0, 7);
        assertEquals(at(0), endLater(at(5)));
        assertEquals(at(7), endLater(at(0)));
        view.id = "id-1";
        assertEquals(at(7), endLater(at(7)));
        assertEquals("id-2", planner.planTasks(at(0), at(7)).get(0).topicId(), "the old one would be read as lost");
        view.id = "id-2";
        assertEquals(at(7), endLater(at(7)), "nor is the new one new again");
        view.create("id-3");
        assertEquals(at(0), endLater(at(7)), "a third topic is another one again");
    }

    @Test
    void aRunThatKnowsTheNewTopicAloneDoesNotBelieveInTheOldOne() {
        view.create("id-2");
        view.log(0, 0, 7);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        planner.initialOffsets();
        assertEquals(at(7), end(at(0)));
        view.id = "id-1";
        assertEquals(at(7), endLater(at(7)));
        view.id = "id-2";
        view.log(0, 0, 9);
        assertEquals(at(9), endLater(at(7)));
        assertEquals(List.of("id-2"), idsOf(planner.planTasks(at(7), at(9))));
    }

    @Test
    void aRunThatBeginsAtALaggingNodeReadsNoRowsTwice() {
        view.create("id-2");
        view.log(0, 0, 7);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        view.id = "id-1";
        assertEquals(at(7), end(at(7)), "behind a restart");
        view.id = "id-2";
        assertEquals(at(7), endLater(at(7)));
    }

    @Test
    void aReplayedBatchAtALaggingNodeIsOfTheNewTopic() {
        view.create("id-2");
        view.log(0, 0, 7);
        view.id = "id-1";
        plan("startingOffsets", "earliest");
        assertEquals(List.of("id-2"), idsOf(planner.planTasks(at(0), at(7))));
    }

    @Test
    void aTopicThatIsCreatedAgainBeforeTheFirstBatchFromLatestBeginsAnew() {
        for (long held : new long[] {0, 99, 100, 101}) {
            view.create("id-1");
            view.log(0, 0, 100);
            view.log(1, 0, 100);
            plan("failOnDataLoss", "false");
            SortedMap<TopicPartition, Long> start = planner.initialOffsets();
            view.create("id-2");
            view.log(0, 0, held);
            view.log(1, 0, 1);
            assertEquals(at(0, 0), end(start), "ends at " + held);
            assertEquals(at(held, 1), endLater(at(0, 0)));
        }
    }

    /** The other partition still marks the place. */
    @Test
    void aLogThatLostItsEndBeforeTheFirstBatchFromLatestBeginsAnew() {
        view.log(0, 0, 100);
        view.log(1, 0, 100);
        plan("failOnDataLoss", "false");
        SortedMap<TopicPartition, Long> start = planner.initialOffsets();
        view.log(0, 0, 99);
        view.log(1, 0, 101);
        assertEquals(at(0, 100), end(start));
        assertEquals(at(99, 101), endLater(at(0, 100)));
    }

    @Test
    void availableNowDoesNotEndEarlyWhereANodeLags() {
        view.log(0, 0, 100);
        view.log(1, 0, 100);
        plan("startingOffsets", "earliest");
        planner.prepareAvailableNow();
        view.log(1, 0, 120);
        view.untold.add(T1);
        assertEquals(at(100, 100), end(at(100, 50)), "Spark takes an end that is the start for the end of the query");
        view.untold.add(T0);
        assertEquals(at(100, 100), end(at(99, 100)));
        assertEquals(at(101, 100), end(at(101, 100)), "no row twice");
    }

    @Test
    void availableNowReadsNothingOfAPartitionWhoseEndWasNotKnown() {
        view.log(0, 0, 100);
        view.log(1, 0, 100);
        view.untold.add(T1);
        plan("startingOffsets", "earliest");
        planner.prepareAvailableNow();
        assertEquals(at(100, 50), end(at(0, 50)));
    }

    @Test
    void aTopicThatIsCreatedAgainBehindTheStartOfAQueryBeginsAnew() {
        view.log(0, 50, 100);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        view.behindStarts = () -> {
            view.create("id-2");
            view.log(0, 0, 200);
        };
        assertEquals(at(50), planner.initialOffsets());
        assertEquals(at(0), end(at(50)), "the start is of the topic that was there before it was asked for");
    }

    @Test
    void aBatchQueryDoesNotMixTheOffsetsOfTwoTopics() {
        view.log(0, 5, 10);
        raw.put("failOnDataLoss", "false");
        view.behindStarts = () -> {
            view.create("id-2");
            view.log(0, 0, 10);
        };
        List<PlannedRange> tasks = tasks(SourceOptions.of(raw).forBatch()).batch(Wanted.ALL);
        assertEquals(List.of("id-1"), idsOf(tasks), "records 0 to 4 of the new one would be missing silently");
    }

    @Test
    void whatIsAvailableIsThatOfTheTopicThatCameBetweenTheTargetAndTheStart() {
        for (long held : new long[] {0, 1, 4_999, 5_000, 5_001}) {
            view.create("id-1");
            view.log(0, 0, 5_000);
            plan("startingOffsets", "earliest", "failOnDataLoss", "false");
            planner.prepareAvailableNow();
            view.create("id-2");
            view.log(0, 0, held);
            assertEquals(at(0), planner.initialOffsets());
            assertEquals(at(held), end(at(0)), "the new one holds " + held);
            assertEquals(at(held), endLater(at(held)));
        }
        plan("failOnDataLoss", "true");
        planner.prepareAvailableNow();
        view.create("id-3");
        planner.initialOffsets();
        assertEquals(true, lost(() -> end(at(0))).contains("was deleted and created again"));
    }

    /** Else the query would go on amid it, as it grows. */
    @Test
    void aTopicWhoseBeginningNobodyTellsYetBeginsAnewWithALaterLook() {
        view.log(0, 0, 300);
        view.log(1, 0, 300);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        planner.initialOffsets();
        end(at(300, 300));
        view.create("id-2");
        view.log(0, 0, 900);
        view.log(1, 0, 100);
        view.unstarted.add(T0);
        assertEquals(at(300, 300), endLater(at(300, 300)), "one partition does not go on without the other");
        assertEquals(at(300, 300), endLater(at(300, 300)));
        assertEquals(List.of("id-1"), idsOf(planner.planTasks(at(299, 300), at(300, 300))));
        view.unstarted.clear();
        assertEquals(at(0, 0), endLater(at(300, 300)));
        assertEquals(at(900, 100), endLater(at(0, 0)));
    }

    @Test
    void anAddedPartitionWhoseStartNobodyTellsIsNotPassedOver() {
        view.log(0, 0, 20);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        view.unstarted.add(T0);
        assertThrows(IllegalStateException.class, () -> planner.planTasks(at(), at(20)));
        view.unstarted.clear();
        assertEquals(List.of("[0, 20) of t-0"), ranges(at(), at(20)));
    }

    // --- real-time mode ----------------------------------------------------------------------------------------------

    @Test
    void realTimeModeReadsATopicThatALaggingNodeDoesNotListByItsId() {
        view.log(0, 0, 7);
        plan("startingOffsets", "earliest");
        planner.prepareRealTime();
        view.isUnlisted = true;
        view.untold.add(T0);
        assertEquals(List.of("id-1"), idsOf(planner.planRealTime(at(5))), "its leader has answered: it is not gone");
        assertEquals(List.of("t"), view.lookedFor);
        assertEquals(List.of("id-1"), idsOf(planner.planRealTime(at(6))));
        assertEquals(List.of("t"), view.lookedFor);
    }

    /** The checkpoint has old offsets until the sink has committed: until then a restart needs the old note. */
    @Test
    void aTopicThatBeginsAnewIsWrittenDownWithTheNextBatchOfRealTimeMode() {
        view.log(0, 0, 10);
        plan("startingOffsets", "earliest", "failOnDataLoss", "false");
        planner.prepareRealTime();
        planner.initialOffsets();
        List<PlannedRange> first = planner.planRealTime(at(10));
        assertEquals(first, planner.readOn(first));
        view.create("id-2");
        view.log(0, 0, 20);
        view.log(1, 0, 20);
        List<PlannedRange> anew = planner.planRealTime(at(10));
        assertEquals(List.of("id-2", "id-2"), idsOf(anew));
        assertEquals(List.of(), planner.readOn(anew), "a partition that was added is of the new topic too");
        List<PlannedRange> next = planner.planRealTime(at(20, 20));
        assertEquals(List.of("id-2", "id-2"), idsOf(planner.readOn(next)));
    }
}
