package io.raftlake.spark.live;

import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.state.StateDataSource;
import org.apache.spark.sql.execution.datasources.v2.state.StateDataSourceOffsetLogUnavailable;
import org.apache.spark.sql.execution.datasources.v2.state.StateScan;
import org.apache.spark.sql.execution.datasources.v2.state.StateTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's table of a state, made anew for each query that is planned: a view over it shows the newest batch each time. Within
 * one query, each mention of the table is a look of its own; {@code batchId} makes all see one batch.
 */
public final class LiveTable implements SupportsRead, SupportsMetadataColumns {
    /** The query may remove the batch that was the newest before the look at it is over; so often at most the look is repeated. */
    private static final int LOOKS_MAX = 10;

    private final StructType schema;
    private final CaseInsensitiveStringMap options;
    private final StateTable first;

    /** {@code options}: those of the user. Errors of Spark's source where there is no state that they name. */
    public LiveTable(StructType schema, CaseInsensitiveStringMap options) {
        this.schema = schema;
        this.options = options;
        this.first = look().table;
    }

    private record Look(Request request, StateTable table) {}

    private Look look() {
        for (int look = 1; ; look++) {
            Request request = Request.of(options);
            try {
                return new Look(request, request.asking(pinned -> (StateTable) new StateDataSource()
                        .getTable(schema, new Transform[0], pinned.asCaseSensitiveMap())));
            } catch (StateDataSourceOffsetLogUnavailable removed) {
                if (options.containsKey("batchId") || look == LOOKS_MAX) {
                    throw removed;
                }
            }
        }
    }

    @Override
    public String name() {
        return Request.FORMAT + " " + options.get("path");
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return first.capabilities();
    }

    @Override
    public MetadataColumn[] metadataColumns() {
        return first.metadataColumns();
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ofQuery) {
        Look look = look();
        return () -> new LiveScan((StateScan) look.table.newScanBuilder(ofQuery).build(), look.request);
    }
}
