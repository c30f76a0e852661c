package io.raftlake.spark.connector.write;

import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * A task of a batch that is visible already: its rows are not written again. A streaming query reads them all the same, since
 * its state commits at their end, and Spark ends a query whose state is not committed.
 *
 * @param isOfStream whether a streaming query has begun the write
 */
record SkippingWriter(boolean isOfStream) implements DataWriter<InternalRow> {
    @Override
    public void writeAll(Iterator<InternalRow> rows) {
        while (isOfStream && rows.hasNext()) {
            rows.next();
        }
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
