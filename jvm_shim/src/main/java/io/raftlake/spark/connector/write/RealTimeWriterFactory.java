package io.raftlake.spark.connector.write;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/** Makes the writers of tasks of real-time mode, on executors. */
record RealTimeWriterFactory(SinkOptions options, SinkColumns columns) implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long taskId, long batch) {
        return new RealTimeWriter(options, columns, SinkClient.of(options.quorum()),
                new SinkTask("batch " + batch + ": ", partition, ""));
    }
}
