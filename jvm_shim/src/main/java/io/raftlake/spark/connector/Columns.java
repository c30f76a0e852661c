package io.raftlake.spark.connector;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The columns of the source, which are those of Spark's Kafka connector; and how types are compared. */
public final class Columns {
    /** A struct of {@code key} and {@code value} for each header. */
    public static final ArrayType HEADERS = DataTypes.createArrayType(new StructType()
            .add("key", DataTypes.StringType)
            .add("value", DataTypes.BinaryType));

    private static final StructType SOURCE = new StructType()
            .add("key", DataTypes.BinaryType)
            .add("value", DataTypes.BinaryType)
            .add("topic", DataTypes.StringType)
            .add("partition", DataTypes.IntegerType)
            .add("offset", DataTypes.LongType)
            .add("timestamp", DataTypes.TimestampType)
            .add("timestampType", DataTypes.IntegerType);

    private Columns() {}

    /** The columns that the source yields. */
    public static StructType ofSource(boolean includeHeaders) {
        return includeHeaders ? SOURCE.add("headers", HEADERS) : SOURCE;
    }

    /** IllegalArgumentException for a schema that the user gave, and that is another one than the source has. */
    public static void requireOfSource(StructType schema, boolean includeHeaders) {
        StructType expected = ofSource(includeHeaders);
        if (!shape(schema).equals(shape(expected))) {
            throw new IllegalArgumentException("raftlake source has a fixed schema and cannot be set with a custom one: got "
                    + schema.simpleString() + ", the source has " + expected.simpleString());
        }
    }

    /** Whether names and types are the same; nullability and metadata may differ. */
    public static boolean haveOneShape(DataType one, DataType other) {
        return shape(one).equals(shape(other));
    }

    /** Names and types, without nullability and metadata. */
    static Object shape(DataType type) {
        if (type instanceof StructType struct) {
            List<Object> fields = new ArrayList<>();
            for (StructField field : struct.fields()) {
                fields.add(List.of(field.name(), shape(field.dataType())));
            }
            return fields;
        }
        // SHOW CREATE TABLE prints the plain one with its collation. Texts of a bounded length are types of their own.
        if (type.getClass() == StringType.class && ((StringType) type).isUTF8BinaryCollation()) {
            return DataTypes.StringType.typeName();
        }
        return type instanceof ArrayType array ? List.of("array", shape(array.elementType())) : type.typeName();
    }
}
