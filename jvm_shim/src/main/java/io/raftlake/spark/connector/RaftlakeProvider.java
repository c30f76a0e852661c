package io.raftlake.spark.connector;

import io.raftlake.spark.Versions;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Logs of a raftlake quorum as a Spark source and sink, with the options and columns of Spark's Kafka connector: the connector
 * in Java, which does what the one in Python does.
 */
public class RaftlakeProvider implements TableProvider, DataSourceRegister {
    /** What users name. */
    public static final String FORMAT = "raftlake";

    /** As Spark calls it. */
    public RaftlakeProvider() {
        Versions.requireSpark();
    }

    @Override
    public String shortName() {
        return FORMAT;
    }

    /** Without it Spark would refuse a schema that the user gives, even the right one. */
    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    /** Called by {@code load()}, and for streaming writers. */
    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return RaftlakeTable.inferSchema(options.asCaseSensitiveMap());
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new RaftlakeTable(schema, properties);
    }
}
