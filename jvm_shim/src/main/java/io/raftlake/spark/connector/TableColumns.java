package io.raftlake.spark.connector;

import io.raftlake.spark.connector.write.SinkBuilder;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The columns of a table of the catalog. They are fixed, so what else a statement asks for is refused by name.
 *
 * <p>Names are compared as Spark compares those of the session, and by default the case of letters does not count.
 */
final class TableColumns {
    private static final StructType ALL = Columns.ofSource(true);
    private static final List<String> NAMES = List.of(ALL.fieldNames());

    private TableColumns() {}

    /** How the table spells the column of this name; null where it has none. */
    private static String spelled(String name) {
        boolean isExact = SQLConf.get().caseSensitiveAnalysis();
        return NAMES.stream()
                .filter(known -> isExact ? known.equals(name) : known.equalsIgnoreCase(name))
                .findFirst()
                .orElse(null);
    }

    private static String hint(String name) {
        List<String> close = CloseNames.of(name.toLowerCase(Locale.ROOT), NAMES, 1);
        return close.isEmpty() ? "" : "; did you mean '" + close.get(0) + "'?";
    }

    /**
     * The columns of rows that are written, as the table spells them. A table has just the columns that it shows; rows that are
     * written to a format may have others, as with Spark's Kafka sink.
     */
    static StructType ofRows(StructType rows, String table) {
        List<StructField> fields = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        for (StructField field : rows.fields()) {
            String name = spelled(field.name());
            if (name == null) {
                String hint = hint(field.name());
                throw new IllegalArgumentException("the table " + table + " has no column '" + field.name() + "'"
                        + (hint.isEmpty() ? "." : hint) + " Its columns are " + Errors.list(NAMES));
            }
            if (!seen.add(name)) {
                throw new IllegalArgumentException("the rows for the table " + table + " have two columns '" + name + "'");
            }
            fields.add(new StructField(name, field.dataType(), field.nullable(), field.metadata()));
        }
        return new StructType(fields.toArray(StructField[]::new));
    }

    /** Refuses columns of a new table that no topic has. Their types are the matter of the two methods below. */
    static void requireKnown(Column[] columns) {
        Set<String> unknown = new TreeSet<>();
        for (Column column : columns) {
            if (spelled(column.name()) == null) {
                unknown.add(column.name());
            }
        }
        if (!unknown.isEmpty()) {
            throw new IllegalArgumentException("a table of raftlake is a topic: its columns are " + Errors.list(new TreeSet<>(NAMES))
                    + ". Leave out the column " + Errors.list(unknown) + (unknown.size() == 1
                    ? hint(unknown.iterator().next()) : ""));
        }
    }

    /** Of a CREATE TABLE that lists columns: the table will have these types, and nothing that is said of a column is kept. */
    static void requireAsDeclared(Column[] columns) {
        for (Column column : columns) {
            String name = spelled(column.name());
            DataType kept = ALL.apply(name).dataType();
            if (!Columns.haveOneShape(column.dataType(), kept)) {
                throw new IllegalArgumentException("the column '" + name + "' of a table of raftlake is " + kept.sql()
                        + ", and cannot be " + column.dataType().sql() + ". Leave out the list of columns; a query casts the column");
            }
            if (!column.nullable()) {
                throw new IllegalArgumentException(
                        "the column '" + name + "' of a table of raftlake may be null: leave out NOT NULL");
            }
            if (column.comment() != null) {
                throw new IllegalArgumentException("a table of raftlake is a topic, which keeps no comment: leave out COMMENT of"
                        + " the column '" + name + "'");
            }
        }
    }

    /** Of a table that is created for rows: those that the sink will refuse make no topic. */
    static void requireWritable(Column[] columns) {
        StructType rows = new StructType();
        for (Column column : columns) {
            rows = rows.add(spelled(column.name()), column.dataType());
        }
        SinkBuilder.requireTypes(rows);
    }
}
