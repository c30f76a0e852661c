package io.raftlake.spark;

import io.raftlake.spark.live.LiveTable;
import io.raftlake.spark.live.Request;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.state.StateDataSource;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code spark.read.format("raftlake-state").option("path", "raftlake://orders/main").load()}: the state of a streaming query as
 * a table, while the query runs ({@link io.raftlake.spark.live}).
 */
public class LiveState implements TableProvider, DataSourceRegister {
    /** As Spark calls it. */
    public LiveState() {
        Versions.requireSpark();
    }

    @Override
    public String shortName() {
        return Request.FORMAT;
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return Request.of(options).asking(new StateDataSource()::inferSchema);
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        // Stores that are loaded report to a coordinator, which a session makes when it is first asked for its streams.
        SparkSession.active().streams();
        return new LiveTable(schema, new CaseInsensitiveStringMap(properties));
    }
}
