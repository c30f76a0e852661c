package io.raftlake.spark.connector.write;

import io.raftlake.spark.connector.Columns;
import io.raftlake.spark.connector.Errors;
import java.io.Serializable;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Where the columns of the sink are in a row; -1 for one that is not there, or that an option overrides. Other columns are
 * ignored, as in Spark's Kafka connector, so a stream that was read can be written back as it is.
 */
record SinkColumns(int topic, int key, boolean isKeyBinary, int value, boolean isValueBinary, int headers, int partition)
        implements Serializable {
    private static final List<String> NAMES = List.of("topic", "key", "value", "headers", "partition");
    private static final List<DataType> BYTES = List.of(DataTypes.StringType, DataTypes.BinaryType);
    private static final Map<String, List<DataType>> TYPES = Map.of("topic", List.of(DataTypes.StringType), "key", BYTES, "value",
            BYTES, "headers", List.of(Columns.HEADERS), "partition", List.of(DataTypes.IntegerType));

    /** IllegalArgumentException where one is missing, or has a type that cannot be written. */
    static SinkColumns of(StructType schema, String topicOption) {
        int value = index(schema, "value");
        if (value < 0) {
            throw Errors.missingValue(List.of(schema.fieldNames()), NAMES);
        }
        int topic = index(schema, "topic");
        if (topicOption == null && topic < 0) {
            throw new IllegalArgumentException(
                    "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.");
        }
        requireTypes(schema);
        return new SinkColumns(topicOption == null ? topic : -1, index(schema, "key"), isBinary(schema, "key"), value,
                isBinary(schema, "value"), index(schema, "headers"), index(schema, "partition"));
    }

    static void requireTypes(StructType schema) {
        NAMES.forEach(name -> requireType(schema, name));
    }

    private static int index(StructType schema, String name) {
        return List.of(schema.fieldNames()).lastIndexOf(name);
    }

    private static boolean isBinary(StructType schema, String name) {
        int index = index(schema, name);
        return index >= 0 && schema.fields()[index].dataType() instanceof BinaryType;
    }

    private static void requireType(StructType schema, String name) {
        int index = index(schema, name);
        if (index < 0) {
            return;
        }
        DataType type = schema.fields()[index].dataType();
        List<DataType> allowed = TYPES.get(name);
        if (allowed.stream().noneMatch(each -> Columns.haveOneShape(type, each))) {
            String expected = allowed.stream().map(DataType::simpleString).collect(Collectors.joining(" or "));
            throw new IllegalArgumentException(name + " attribute unsupported type " + type.simpleString() + ". " + name
                    + " must be a(n) " + expected);
        }
    }
}
