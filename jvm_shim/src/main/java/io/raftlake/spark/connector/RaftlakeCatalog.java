package io.raftlake.spark.connector;

import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.Codec;
import io.raftlake.spark.log.KafkaLogs;
import io.raftlake.spark.log.LogSettings;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.Topic;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Topics as tables: {@code spark.sql.catalog.raftlake=io.raftlake.spark.connector.RaftlakeCatalog}.
 *
 * <p>A table is a topic, and has the columns of the source. Options of the catalog are those of source and sink that say where the
 * nodes are and how patient a client is, {@code includeHeaders} too. Properties of a new table are {@code partitions} (1) and
 * configs of topics.
 *
 * <p>It stages tables so that Spark asks before it replaces one: without that, Spark would drop the topic first.
 */
public final class RaftlakeCatalog implements StagingTableCatalog {
    private static final String PARTITIONS = "partitions";
    private static final long TIMEOUT_MS = 60_000;

    /** What Spark itself puts among the properties of a table. */
    private static final Set<String> OF_SPARK = Set.of(PROP_LOCATION, PROP_IS_MANAGED_LOCATION, PROP_EXTERNAL, PROP_TABLE_TYPE,
            PROP_COMMENT, PROP_COLLATION, PROP_PROVIDER, PROP_OWNER);

    private static final Set<String> COLUMNS = columns();

    private String name;
    private Map<String, String> options;

    private static Set<String> columns() {
        return Set.of(Columns.ofSource(true).fieldNames());
    }

    @Override
    public void initialize(String asName, CaseInsensitiveStringMap given) {
        name = asName;
        options = new TreeMap<>(given.asCaseSensitiveMap());
        List<String> known = new ArrayList<>(
                List.of(OptionNames.SERVERS, OptionNames.SERVERS_SHORT, OptionNames.INCLUDE_HEADERS));
        known.addAll(OptionNames.CLIENT_SETTINGS);
        for (String option : given.keySet()) {
            if (known.stream().noneMatch(option::equalsIgnoreCase)) {
                throw Errors.unknownOption(option, known);
            }
        }
    }

    @Override
    public String name() {
        return name;
    }

    private Logs logs() {
        RawOptions raw = new RawOptions(options, OptionNames.SINK, OptionNames.SINK_WITHOUT_EFFECT, null);
        Quorum quorum = Quorum.of(raw, Quorum.Patience.ofSource(raw));
        return new KafkaLogs(new LogSettings(Bootstrap.parse(quorum.servers()), TIMEOUT_MS, Codec.NONE));
    }

    private Optional<Topic> topic(Identifier table) {
        try {
            return table.namespace().length == 0 ? logs().topic(table.name()) : Optional.empty();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length > 0) {
            throw new NoSuchNamespaceException(namespace);
        }
        try {
            return logs().topics("").stream().map(topic -> Identifier.of(namespace, topic)).toArray(Identifier[]::new);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public boolean tableExists(Identifier table) {
        return topic(table).isPresent();
    }

    @Override
    public Table loadTable(Identifier table) throws NoSuchTableException {
        Optional<Topic> topic = topic(table);
        if (topic.isEmpty()) {
            throw new NoSuchTableException(table);
        }
        return RaftlakeTable.ofTopic(topic.get(), options);
    }

    @Override
    public StagedTable stageCreate(Identifier table, TableInfo info)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        return new StagedTopic(createTable(table, info), () -> dropTable(table));
    }

    @Override
    public StagedTable stageReplace(Identifier table, TableInfo info) throws NoSuchTableException {
        if (!tableExists(table)) {
            throw new NoSuchTableException(table);
        }
        throw cannotReplace(table);
    }

    @Override
    public StagedTable stageCreateOrReplace(Identifier table, TableInfo info) throws NoSuchNamespaceException {
        try {
            return stageCreate(table, info);
        } catch (TableAlreadyExistsException exists) {
            throw cannotReplace(table);
        }
    }

    private static UnsupportedOperationException cannotReplace(Identifier table) {
        return new UnsupportedOperationException("the table " + table + " is a topic, and a log cannot be overwritten: its records"
                + " are still there. Append to it, or DROP TABLE first");
    }

    @Override
    public RaftlakeTable createTable(Identifier table, TableInfo info) throws TableAlreadyExistsException, NoSuchNamespaceException {
        if (table.namespace().length > 0) {
            throw new NoSuchNamespaceException(table.namespace());
        }
        requireCreatable(info.columns(), info.partitions());
        if (tableExists(table)) {
            throw new TableAlreadyExistsException(table);
        }
        Map<String, String> configs = new TreeMap<>();
        info.properties().forEach((property, value) -> {
            if (!OF_SPARK.contains(property) && !property.startsWith(OPTION_PREFIX) && !property.equals(PARTITIONS)) {
                configs.put(property, value);
            }
        });
        try {
            return RaftlakeTable.ofTopic(logs().ensureTopic(table.name(), partitions(info.properties()), configs), options);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void requireCreatable(Column[] columns, Transform[] partitioning) {
        Set<String> unknown = new TreeSet<>();
        for (Column column : columns) {
            if (!COLUMNS.contains(column.name())) {
                unknown.add(column.name());
            }
        }
        if (!unknown.isEmpty() || partitioning.length > 0) {
            throw new IllegalArgumentException("a table of raftlake is a topic: its columns are "
                    + Errors.list(new TreeSet<>(COLUMNS)) + ". Leave out " + (unknown.isEmpty()
                    ? "PARTITIONED BY, and set TBLPROPERTIES(partitions=N)" : "the column " + Errors.list(unknown)));
        }
    }

    private static int partitions(Map<String, String> properties) {
        String text = properties.getOrDefault(PARTITIONS, "1");
        if (!text.matches("[1-9][0-9]{0,5}")) {
            throw new IllegalArgumentException(
                    "the property '" + PARTITIONS + "' is '" + text + "', expected a whole number above 0");
        }
        return Integer.parseInt(text);
    }

    @Override
    public boolean dropTable(Identifier table) {
        if (!tableExists(table)) {
            return false;
        }
        try {
            logs().deleteTopic(table.name());
            return true;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public Table alterTable(Identifier table, TableChange... changes) {
        throw new UnsupportedOperationException(
                "a table of raftlake is a topic: change its settings with `raftlake topics`, or kafka-configs");
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw new UnsupportedOperationException("a topic keeps its name: " + from + " cannot become " + to);
    }
}
