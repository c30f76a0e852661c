package io.raftlake.spark.connector.read;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What the filters of a batch query leave of its ranges. Spark applies each filter again itself, so a filter that is of an
 * unknown kind leaves everything. Null is without a limit.
 *
 * @param offsetMax inclusive
 * @param usMin in microseconds since 1970
 * @param usMax inclusive
 */
record Wanted(Set<Integer> partitions, Set<String> topics, Long offsetMin, Long offsetMax, Long usMin, Long usMax)
        implements Serializable {
    static final Wanted ALL = new Wanted(null, null, null, null, null, null);

    /** The part of a range that may hold wanted rows; null for none. */
    OffsetRange narrow(OffsetRange range) {
        if (partitions != null && !partitions.contains(range.at().partition())
                || topics != null && !topics.contains(range.at().topic())) {
            return null;
        }
        long start = offsetMin == null ? range.start() : Math.max(range.start(), offsetMin);
        long end = offsetMax == null || offsetMax == Long.MAX_VALUE ? range.end() : Math.min(range.end(), offsetMax + 1);
        return start < end ? range.within(start, end) : null;
    }

    /** Whether this says something of a condition. */
    static boolean takes(Predicate condition) {
        return !ALL.meeting(condition).equals(ALL);
    }

    /** These rows, as far as they meet one more filter. */
    Wanted meeting(Predicate condition) {
        String column = column(condition);
        List<Object> values = column == null ? null : values(condition, column);
        if (values == null) {
            return this;
        }
        switch (condition.name()) {
            case "=", "<=>", "IN":
                return among(column, values);
            default:
                if (!column.equals("offset") && !column.equals("timestamp")) {
                    return this;
                }
        }
        long value = (Long) values.get(0);
        return switch (condition.name()) {
            case ">" -> value == Long.MAX_VALUE ? this : within(column, value + 1, null);
            case ">=" -> within(column, value, null);
            case "<" -> value == Long.MIN_VALUE ? this : within(column, null, value - 1);
            case "<=" -> within(column, null, value);
            default -> this;
        };
    }

    private Wanted among(String column, List<Object> values) {
        switch (column) {
            case "partition":
                Set<Integer> numbers = new HashSet<>();
                values.forEach(value -> numbers.add((Integer) value));
                return new Wanted(both(partitions, numbers), topics, offsetMin, offsetMax, usMin, usMax);
            case "topic":
                Set<String> names = new HashSet<>();
                values.forEach(value -> names.add(value.toString()));
                return new Wanted(partitions, both(topics, names), offsetMin, offsetMax, usMin, usMax);
            default:
                List<Long> sorted = values.stream().map(value -> (Long) value).sorted().toList();
                return within(column, sorted.get(0), sorted.get(sorted.size() - 1));
        }
    }

    private Wanted within(String column, Long low, Long high) {
        return column.equals("offset")
                ? new Wanted(partitions, topics, larger(offsetMin, low), smaller(offsetMax, high), usMin, usMax)
                : new Wanted(partitions, topics, offsetMin, offsetMax, larger(usMin, low), smaller(usMax, high));
    }

    private static <T> Set<T> both(Set<T> known, Set<T> more) {
        if (known != null) {
            more.retainAll(known);
        }
        return more;
    }

    private static Long larger(Long one, Long other) {
        return one == null || other == null ? one == null ? other : one : (Long) Math.max(one, other);
    }

    private static Long smaller(Long one, Long other) {
        return one == null || other == null ? one == null ? other : one : (Long) Math.min(one, other);
    }

    /** The column that a condition compares with constants, if it is one of these four; else null. */
    private static String column(Predicate condition) {
        Expression[] children = condition.children();
        if (children.length < 2 || !(children[0] instanceof NamedReference name) || name.fieldNames().length != 1) {
            return null;
        }
        String column = name.fieldNames()[0];
        return type(column) == null ? null : column;
    }

    private static DataType type(String column) {
        return switch (column) {
            case "partition" -> DataTypes.IntegerType;
            case "topic" -> DataTypes.StringType;
            case "offset" -> DataTypes.LongType;
            case "timestamp" -> DataTypes.TimestampType;
            default -> null;
        };
    }

    /** The constants; null where one of them is none, or of another type. */
    private static List<Object> values(Predicate condition, String column) {
        List<Object> values = new ArrayList<>();
        for (int index = 1; index < condition.children().length; index++) {
            boolean isOfColumn = condition.children()[index] instanceof Literal<?> literal
                    && literal.value() != null && literal.dataType().equals(type(column))
                    && (literal.value() instanceof Long || literal.value() instanceof Integer
                            || literal.value() instanceof UTF8String)
                    && values.add(literal.value());
            if (!isOfColumn) {
                return null;
            }
        }
        return values;
    }
}
