package io.raftlake.spark.connector;

import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.Codec;
import io.raftlake.spark.log.LogSettings;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.Created;
import io.raftlake.spark.log.Logs.Topic;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Topics as tables: {@code spark.sql.catalog.raftlake=io.raftlake.spark.connector.RaftlakeCatalog}.
 *
 * <p>A table is a topic, and has the columns of the source. Options of the catalog are those of source and sink that say where the
 * nodes are and how patient a client is, {@code includeHeaders} too. Properties of a new table are {@code partitions} (1) and
 * configs of topics; {@code topic_id} is passed over, so that what SHOW CREATE TABLE prints makes such a table again.
 *
 * <p>It stages tables so that Spark asks before it replaces one: without that, Spark would drop the topic first.
 */
public final class RaftlakeCatalog implements StagingTableCatalog {
    private static final Logger LOG = LoggerFactory.getLogger(RaftlakeCatalog.class);
    private static final long TIMEOUT_MS = 60_000;
    private static final Pattern TOPIC = Pattern.compile("(?!\\.{1,2}$)[a-zA-Z0-9._-]{1,249}");

    /** What Spark itself puts among the properties of a table, and what SHOW CREATE TABLE tells that only this topic can have. */
    private static final Set<String> NOT_CONFIGS = Set.of(PROP_LOCATION, PROP_IS_MANAGED_LOCATION, PROP_EXTERNAL, PROP_TABLE_TYPE,
            PROP_COMMENT, PROP_COLLATION, PROP_PROVIDER, PROP_OWNER, RaftlakeTable.PARTITIONS, RaftlakeTable.TOPIC_ID);

    private String name;
    private Map<String, String> options;

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
        return Logs.of(new LogSettings(Bootstrap.parse(quorum.servers()), TIMEOUT_MS, Codec.NONE));
    }

    /** What the quorum refuses is the user's to change, and is told without a stack of causes. */
    private static <T> T asked(Callable<T> question) {
        try {
            return question.call();
        } catch (RefusedException refused) {
            throw new IllegalArgumentException(refused.getMessage(), refused);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception other) {
            throw new IllegalStateException(other);
        }
    }

    private Optional<Topic> topic(Identifier table) {
        if (table.namespace().length > 0 || !TOPIC.matcher(table.name()).matches()) {
            return Optional.empty();
        }
        return asked(() -> logs().topic(table.name()));
    }

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length > 0) {
            throw new NoSuchNamespaceException(namespace);
        }
        return asked(() -> logs().topics("")).stream().map(topic -> Identifier.of(namespace, topic)).toArray(Identifier[]::new);
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
        return table(topic.get());
    }

    @Override
    public StagedTable stageCreate(Identifier table, TableInfo info)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        Created created = create(table, info, true);
        return new StagedTopic(table(created.topic()), () -> drop(created));
    }

    private void drop(Created created) {
        if (!created.isOurs()) {
            LOG.warn("the topic {} stays: whether this statement has made it is unknown", created.topic().name());
            return;
        }
        asked(() -> {
            logs().deleteTopic(created.topic());
            return true;
        });
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

    /** A format is named where {@code toTable} creates a table for its rows, which may have the types that the sink takes. */
    @Override
    public RaftlakeTable createTable(Identifier table, TableInfo info) throws TableAlreadyExistsException, NoSuchNamespaceException {
        return table(create(table, info, info.properties().containsKey(PROP_PROVIDER)).topic());
    }

    private Created create(Identifier table, TableInfo info, boolean isForRows)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        if (table.namespace().length > 0) {
            throw new NoSuchNamespaceException(table.namespace());
        }
        if (!TOPIC.matcher(table.name()).matches()) {
            throw new IllegalArgumentException("'" + table.name() + "' is no name of a topic: it takes 1 to 249 of the letters a-z "
                    + "and A-Z, digits, '.', '_' and '-', and is neither '.' nor '..'");
        }
        requireUnpartitioned(info.partitions());
        requireKept(info.properties());
        TableColumns.requireKnown(info.columns());
        if (isForRows) {
            TableColumns.requireWritable(info.columns());
        } else {
            TableColumns.requireAsDeclared(info.columns());
        }
        if (tableExists(table)) {
            throw new TableAlreadyExistsException(table);
        }
        Map<String, String> configs = new TreeMap<>();
        info.properties().forEach((property, value) -> {
            if (!NOT_CONFIGS.contains(property) && !property.startsWith(OPTION_PREFIX)) {
                configs.put(property, value);
            }
        });
        int partitions = partitions(info.properties());
        return asked(() -> logs().createTopic(table.name(), partitions, configs))
                .orElseThrow(() -> new TableAlreadyExistsException(table));
    }

    private RaftlakeTable table(Topic topic) {
        return RaftlakeTable.ofTopic(topic, options, () -> asked(() -> logs().configs(topic.name())));
    }

    /** What a topic has no place for is refused, and not forgotten. Spark names its default format where nobody names one. */
    private static void requireKept(Map<String, String> properties) {
        String format = properties.getOrDefault(PROP_PROVIDER, RaftlakeProvider.FORMAT);
        if (!format.equalsIgnoreCase(RaftlakeProvider.FORMAT) && !format.equalsIgnoreCase(SQLConf.get().defaultDataSourceName())) {
            throw new IllegalArgumentException("a table of raftlake is a topic: leave out USING " + format);
        }
        for (Map.Entry<String, String> each : Map.of(PROP_COMMENT, "COMMENT", PROP_LOCATION, "LOCATION").entrySet()) {
            if (properties.containsKey(each.getKey())) {
                throw new IllegalArgumentException("a table of raftlake is a topic, which keeps no " + each.getKey() + ": leave out "
                        + each.getValue());
            }
        }
        for (String property : properties.keySet()) {
            boolean isKnown = NOT_CONFIGS.contains(property) || property.contains(".");
            if (!isKnown && !CloseNames.of(property, List.of(RaftlakeTable.PARTITIONS), 1).isEmpty()) {
                throw new IllegalArgumentException(
                        "unknown property '" + property + "' of a table of raftlake; did you mean '" + RaftlakeTable.PARTITIONS + "'?");
            }
        }
    }

    private static void requireUnpartitioned(Transform[] partitioning) {
        if (partitioning.length > 0) {
            throw new IllegalArgumentException("a table of raftlake is a topic, whose partitions are not made by columns: leave out"
                    + " PARTITIONED BY, and set TBLPROPERTIES(partitions=N)");
        }
    }

    private static int partitions(Map<String, String> properties) {
        String text = properties.getOrDefault(RaftlakeTable.PARTITIONS, "1");
        if (!text.matches("[1-9][0-9]{0,5}")) {
            throw new IllegalArgumentException(
                    "the property '" + RaftlakeTable.PARTITIONS + "' is '" + text + "', expected a whole number above 0");
        }
        return Integer.parseInt(text);
    }

    @Override
    public boolean dropTable(Identifier table) {
        if (!tableExists(table)) {
            return false;
        }
        return asked(() -> {
            logs().deleteTopic(table.name());
            return true;
        });
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
