package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.raftlake.spark.log.Logs.Partition;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Which transactions begin before their tasks. */
@Tag("memory")
class LikelyPartitionsTest {
    private static final Partition FIRST = new Partition("t", 0);
    private static final Partition SECOND = new Partition("u", 3);

    private final LikelyPartitions likely = new LikelyPartitions();

    private static TaskReport wrote(Partition... partitions) {
        return new TaskReport(new Ending(1, (short) 0), "id", Map.of("t", 1L), List.of(partitions));
    }

    @Test
    void aTaskProbablyWritesWhereItWroteBefore() {
        assertEquals(List.of(), likely.of(0, 9));
        likely.note(List.of(wrote(FIRST), new TaskReport(null, "", Map.of()), wrote(FIRST, SECOND)), 0);
        assertEquals(List.of(List.of(FIRST), List.of(), List.of(FIRST, SECOND), List.of()),
                List.of(likely.of(0, 9), likely.of(1, 9), likely.of(2, 9), likely.of(3, 9)));
        likely.note(List.of(wrote(SECOND)), 0);
        assertEquals(List.of(List.of(SECOND), List.of()), List.of(likely.of(0, 9), likely.of(2, 9)));
    }

    /** The time limit of its transaction would run while it waits. */
    @Test
    void aTaskThatWaitsForAnotherBeginsItself() {
        likely.note(List.of(wrote(FIRST), wrote(FIRST), wrote(FIRST)), 0);
        assertEquals(List.of(List.of(FIRST), List.of(FIRST), List.of()),
                List.of(likely.of(0, 2), likely.of(1, 2), likely.of(2, 2)));
    }

    @Test
    void behindALongBatchNothingBeginsEarly() {
        likely.note(List.of(wrote(FIRST)), LikelyPartitions.SHORT_MS - 1);
        assertEquals(List.of(FIRST), likely.of(0, 2));
        likely.note(List.of(wrote(FIRST)), LikelyPartitions.SHORT_MS);
        assertEquals(List.of(), likely.of(0, 2));
    }

    @Test
    void aReportNamesFewPartitions() {
        List<Partition> four = List.of(FIRST, SECOND, new Partition("t", 1), new Partition("t", 2));
        TaskReport report = wrote(four.toArray(Partition[]::new));
        assertEquals(four, report.partitions());
        assertEquals(List.of(report), TaskReport.of(new WriterCommitMessage[] {report.message()}));
        assertEquals(List.of(), wrote(FIRST, SECOND, FIRST, FIRST, FIRST).partitions());
    }
}
