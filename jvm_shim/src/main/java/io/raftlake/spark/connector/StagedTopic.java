package io.raftlake.spark.connector;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/** The topic of a {@code CREATE TABLE … AS SELECT}, which is there already, and goes again where the rows cannot be written. */
final class StagedTopic implements StagedTable, SupportsWrite {
    private final RaftlakeTable table;
    private final Runnable drop;

    StagedTopic(RaftlakeTable table, Runnable drop) {
        this.table = table;
        this.drop = drop;
    }

    @Override
    public void commitStagedChanges() {}

    @Override
    public void abortStagedChanges() {
        drop.run();
    }

    @Override
    public String name() {
        return table.name();
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        return table.schema();
    }

    @Override
    public Map<String, String> properties() {
        return table.properties();
    }

    @Override
    public Set<TableCapability> capabilities() {
        return table.capabilities();
    }

    /** Where a table might be replaced Spark overwrites what is there, and here is nothing yet. */
    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        WriteBuilder appending = table.newWriteBuilder(info);
        return new SupportsTruncate() {
            @Override
            public WriteBuilder truncate() {
                return appending;
            }

            @Override
            public Write build() {
                return appending.build();
            }
        };
    }
}
