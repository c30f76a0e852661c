package io.raftlake.spark.live;

import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.state.StateScan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

/** Spark's scan of a state at one batch, with readers that say so where the batch is gone. */
final class LiveScan implements Scan, Batch {
    private final StateScan scan;
    private final Request request;

    LiveScan(StateScan scan, Request request) {
        this.scan = scan;
        this.request = request;
    }

    @Override
    public StructType readSchema() {
        return scan.readSchema();
    }

    @Override
    public String description() {
        return scan.description();
    }

    @Override
    public Batch toBatch() {
        return this;
    }

    @Override
    public InputPartition[] planInputPartitions() {
        return scan.planInputPartitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new LiveReader.Factory(scan.createReaderFactory(), request.location(), request.batch(),
                new SerializableConfiguration(request.conf()));
    }
}
