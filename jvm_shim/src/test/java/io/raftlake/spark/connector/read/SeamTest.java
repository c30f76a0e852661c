package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.connector.table.Span;
import io.raftlake.spark.connector.table.TableFile;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class SeamTest {
    private static final Span SHOWN = new Span(10, 40, List.of(
            new TableFile("a", 100, 1, 10, 19, 1_000L, 1_900L),
            new TableFile("b", 100, 1, 20, 29, 2_000L, 2_900L),
            new TableFile("c", 100, 1, 30, 39, null, null)));

    private static OffsetRange range(long start, long end) {
        return new OffsetRange(new TopicPartition("t", 1), start, end);
    }

    private static String told(List<OffsetRange> ranges) {
        return ranges.stream().map(each -> each.start() + "-" + each.end()).toList().toString();
    }

    private static Wanted times(Long usMin, Long usMax) {
        return new Wanted(null, null, null, null, usMin, usMax);
    }

    @Test
    void aRangeIsReadFromTheTableAndFromTheLog() {
        assertEquals("[5-10, 10-40, 40-50]", told(Seam.split(range(5, 50), SHOWN)));
        assertEquals("[12-38]", told(Seam.split(range(12, 38), SHOWN)));
        assertEquals("[40-50]", told(Seam.split(range(40, 50), SHOWN)));
        assertEquals("[5-10]", told(Seam.split(range(5, 10), SHOWN)));
        assertEquals("[5-50]", told(Seam.split(range(5, 50), null)));
        assertEquals("[5-50]", told(Seam.split(range(5, 50), new Span(7, 7, List.of()))));
        assertEquals("[]", told(Seam.split(range(5, 5), SHOWN)));
    }

    @Test
    void filesOfOtherTimesAreLeftOut() {
        assertEquals("[15-40]", told(Seam.withTimes(range(15, 40), SHOWN, Wanted.ALL)));
        assertEquals("[20-40]", told(Seam.withTimes(range(15, 40), SHOWN, times(1_901L, null))));
        assertEquals("[10-20, 30-35]", told(Seam.withTimes(range(10, 35), SHOWN, times(null, 1_999L))));
        assertEquals("[30-40]", told(Seam.withTimes(range(0, 50), SHOWN, times(9_000L, null))));
    }

    @Test
    void tasksEndWhereFilesEnd() {
        assertEquals("[12-30, 30-38]", told(Seam.cutByBytes(range(12, 38), SHOWN.files(), 200)));
        assertEquals("[10-15, 15-20, 20-25, 25-30, 30-35, 35-40]", told(Seam.cutByBytes(range(10, 40), SHOWN.files(), 50)));
        assertEquals("[10-40]", told(Seam.cutByBytes(range(10, 40), SHOWN.files(), 1 << 20)));
        assertEquals("[39-40]", told(Seam.cutByBytes(range(39, 40), List.of(SHOWN.files().get(2)), 1)));
    }
}
