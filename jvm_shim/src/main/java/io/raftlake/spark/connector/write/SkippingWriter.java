package io.raftlake.spark.connector.write;

import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A task of a batch that is visible already: its rows are not asked for, and not written again. */
final class SkippingWriter implements DataWriter<InternalRow> {
    @Override
    public void writeAll(Iterator<InternalRow> rows) {
        // Not one is taken.
    }

    @Override
    public void write(InternalRow row) {
        // It is in the log.
    }

    @Override
    public WriterCommitMessage commit() {
        return new TaskReport(null, "", Map.of()).message();
    }

    @Override
    public void abort() {
        // Nothing was begun.
    }

    @Override
    public void close() {
        // Nothing is open.
    }
}
