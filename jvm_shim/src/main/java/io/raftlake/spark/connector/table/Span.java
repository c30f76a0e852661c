package io.raftlake.spark.connector.table;

import java.util.List;

/** The offsets that a table shows of a partition: from {@code start} to below {@code end}, and the files that hold them. */
public record Span(long start, long end, List<TableFile> files) {
    public boolean holds(long offset) {
        return start <= offset && offset < end;
    }

    /** The files that hold some of a range, in the order of their offsets. */
    public List<TableFile> within(long from, long until) {
        return files.stream().filter(file -> file.end() > from && file.offsetMin() < until).toList();
    }
}
