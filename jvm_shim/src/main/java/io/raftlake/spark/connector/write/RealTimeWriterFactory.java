package io.raftlake.spark.connector.write;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/**
 * Makes the writers of tasks of real-time mode, on executors.
 *
 * @param standing what the driver found before the batch; null where the sink writes at least once
 */
record RealTimeWriterFactory(SinkOptions options, SinkColumns columns, Standing standing) implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long taskId, long batch) {
        String name = standing == null ? "" : SinkWriterFactory.transactionalId(standing, partition);
        return new RealTimeWriter(options, columns, SinkClient.of(options.quorum()),
                new SinkTask("batch " + batch + ": ", partition, name, null));
    }
}
