package io.raftlake.spark.live;

import java.util.UUID;
import java.util.stream.IntStream;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.state.StateScan;
import org.apache.spark.sql.execution.datasources.v2.state.StateStoreInputPartition;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Spark's scan of a state, over as many partitions as the batch had. Spark's own lists the directories of partitions, and a
 * partition without a snapshot has none in the quorum.
 */
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
        int count = scan.org$apache$spark$sql$execution$datasources$v2$state$StateScan$$batchNumPartitions;
        UUID query = UUID.randomUUID();
        return IntStream.range(0, count)
                .mapToObj(number -> new StateStoreInputPartition(number, query, request.source()))
                .toArray(InputPartition[]::new);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new LiveReader.Factory(scan.createReaderFactory(), request.source().resolvedCpLocation(),
                request.source().batchId(), new SerializableConfiguration(request.conf()));
    }
}
