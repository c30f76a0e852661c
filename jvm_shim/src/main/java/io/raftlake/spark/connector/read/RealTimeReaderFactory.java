package io.raftlake.spark.connector.read;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/** What executors get in real-time mode, where Spark asks for one row at a time. */
record RealTimeReaderFactory(StructType columns) implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        return new RealTimeReader((PlannedRange) partition, columns);
    }
}
