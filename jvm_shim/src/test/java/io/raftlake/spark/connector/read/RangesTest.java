package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.TopicPartition;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class RangesTest {
    private static OffsetRange range(int partition, long start, long end) {
        return new OffsetRange(new TopicPartition("t", partition), start, end);
    }

    private static List<Long> sizes(List<OffsetRange> ranges) {
        return ranges.stream().map(OffsetRange::size).toList();
    }

    private static String limit(long max, String start, String end) {
        return OffsetJson.of(Ranges.limit(max, OffsetJson.parse(start), OffsetJson.parse(end)));
    }

    @Test
    void aLimitIsSharedOutInProportion() {
        assertEquals("{\"t\":{\"0\":25,\"1\":75}}", limit(100, "{\"t\":{\"0\":0,\"1\":0}}", "{\"t\":{\"0\":100,\"1\":300}}"));
        // Small partitions do not starve, and those without a start keep their end.
        assertEquals("{\"t\":{\"0\":6,\"1\":9,\"2\":7}}", limit(10, "{\"t\":{\"0\":5,\"1\":0}}",
                "{\"t\":{\"0\":6,\"1\":1000,\"2\":7}}"));
        assertEquals("{\"t\":{\"0\":5}}", limit(10, "{\"t\":{\"0\":5}}", "{\"t\":{\"0\":5}}"));
        long huge = Long.MAX_VALUE / 2;
        assertEquals("{\"t\":{\"0\":" + huge + "}}", limit(huge, "{\"t\":{\"0\":0}}", "{\"t\":{\"0\":" + huge + "}}"));
    }

    @Test
    void largeRangesAreSplit() {
        List<OffsetRange> ranges = List.of(range(0, 0, 100), range(1, 0, 0), range(2, 0, 10_000));
        assertEquals(List.of(100L, 10_000L), sizes(Ranges.split(ranges, null, null)));
        assertEquals(List.of(100L, 5_000L, 5_000L), sizes(Ranges.split(ranges, 3L, null)));
        assertEquals(List.of(100L, 2_500L, 2_500L, 2_500L, 2_500L), sizes(Ranges.split(ranges, null, 3_000L)));
        assertEquals(List.of(3L, 3L, 4L), sizes(Ranges.cut(range(0, 0, 10), 3)));
        assertEquals(List.of(1L, 1L), sizes(Ranges.cut(range(0, 0, 2), 5)));
    }

    @Test
    void piecesLieOneBehindTheOther() {
        List<OffsetRange> pieces = Ranges.split(List.of(range(0, 7, 1_000), range(1, 3, 50_000)), 13L, 9_999L);
        List<Long> cuts = new ArrayList<>();
        for (OffsetRange piece : pieces) {
            if (piece.at().partition() == 1) {
                cuts.add(piece.start());
                cuts.add(piece.end());
            }
        }
        assertEquals(3, cuts.get(0));
        assertEquals(50_000, cuts.get(cuts.size() - 1));
        for (int index = 1; index < cuts.size() - 1; index += 2) {
            assertEquals(cuts.get(index), cuts.get(index + 1));
        }
        assertEquals(13, pieces.size());
    }
}
