package io.raftlake.spark.connector;

import io.raftlake.spark.connector.read.RaftlakeScanBuilder;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The topics that options name, as one table. */
public final class RaftlakeTable implements SupportsRead {
    private final StructType schema;
    private final Map<String, String> options;

    /** {@code schema}: of the source, or of the rows that are written. */
    public RaftlakeTable(StructType schema, Map<String, String> options) {
        this.schema = schema;
        this.options = Map.copyOf(options);
    }

    /** What is wrong with the options of a source, or with its topics, is said here, before any query runs. */
    static StructType inferSchema(Map<String, String> options) {
        CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
        if (OptionNames.SELECTIONS.stream().noneMatch(given::containsKey)) {
            // A sink has none. A source without one is refused by its scan.
            return Columns.ofSource(given.getBoolean(OptionNames.INCLUDE_HEADERS, false));
        }
        SourceOptions source = SourceOptions.of(options);
        RaftlakeScanBuilder.requireReadable(source);
        return Columns.ofSource(source.includeHeaders());
    }

    @Override
    public String name() {
        return RaftlakeProvider.FORMAT;
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ofQuery) {
        SourceOptions source = SourceOptions.of(options);
        Columns.requireOfSource(schema, source.includeHeaders());
        return new RaftlakeScanBuilder(source);
    }
}
