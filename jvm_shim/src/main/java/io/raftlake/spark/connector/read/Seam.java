package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.table.Span;
import io.raftlake.spark.connector.table.TableFile;
import java.util.ArrayList;
import java.util.List;

/**
 * Where a range of offsets is read, the table or the log, and how the table's part is cut into tasks: arithmetic only. The
 * seam is the end of the table as the plan has seen it; each offset of a range lies in one piece.
 */
final class Seam {
    /** Bytes of Parquet files that one task reads, unless {@code minPartitions} asks for less. */
    static final long TASK_BYTES = 32 << 20;

    private Seam() {}

    /** The pieces of a range: those that the table holds, those before and behind it from the log. */
    static List<OffsetRange> split(OffsetRange range, Span shown) {
        List<OffsetRange> pieces = new ArrayList<>();
        long start = range.start();
        if (shown != null && shown.start() < shown.end() && shown.end() > range.start() && shown.start() < range.end()) {
            for (long cut : new long[] {Math.max(range.start(), shown.start()), Math.min(range.end(), shown.end())}) {
                if (cut > start) {
                    pieces.add(range.within(start, cut));
                    start = cut;
                }
            }
        }
        if (range.end() > start) {
            pieces.add(range.within(start, range.end()));
        }
        return pieces;
    }

    /** A range of the table without the files whose times nobody asks for. */
    static List<OffsetRange> withTimes(OffsetRange range, Span shown, Wanted wanted) {
        List<OffsetRange> kept = new ArrayList<>();
        for (TableFile file : shown.within(range.start(), range.end())) {
            if (!file.mayHold(wanted.usMin(), wanted.usMax())) {
                continue;
            }
            OffsetRange part = range.within(Math.max(range.start(), file.offsetMin()), Math.min(range.end(), file.end()));
            OffsetRange last = kept.isEmpty() ? null : kept.get(kept.size() - 1);
            if (last != null && last.end() == part.start()) {
                kept.set(kept.size() - 1, range.within(last.start(), part.end()));
            } else {
                kept.add(part);
            }
        }
        return kept;
    }

    /** Pieces of which each reads about so many bytes of files. They end where files end; a larger file is cut by offsets. */
    static List<OffsetRange> cutByBytes(OffsetRange range, List<TableFile> files, long bytesMax) {
        List<OffsetRange> pieces = new ArrayList<>();
        long start = range.start();
        double size = 0;
        for (TableFile file : files) {
            long first = Math.max(file.offsetMin(), range.start());
            long end = Math.min(file.end(), range.end());
            double share = (double) file.size() * (end - first) / (file.end() - file.offsetMin());
            if (size > 0 && size + share > bytesMax) {
                pieces.add(range.within(start, first));
                start = first;
                size = 0;
            }
            long parts = Math.min(end - first, Math.max(1, Math.round(share / bytesMax)));
            List<OffsetRange> cut = Ranges.cut(range.within(first, end), parts);
            for (OffsetRange part : cut.subList(0, cut.size() - 1)) {
                pieces.add(range.within(start, part.end()));
                start = part.end();
                size = 0;
            }
            size += share / parts;
        }
        if (range.end() > start) {
            pieces.add(range.within(start, range.end()));
        }
        return pieces;
    }
}
