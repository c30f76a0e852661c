package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Columns;
import io.raftlake.spark.connector.TopicPartition;
import java.util.Arrays;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Records that lie in one array of bytes, as columns. A row is the places of its key, value and headers, its offset and its
 * time; bytes are copied when somebody asks for them. It is filled, handed out, and filled again.
 */
final class RecordBlock {
    private static final long US_PER_MS = 1_000;
    private static final int ROWS_FIRST = 4_096;

    /** Which numbers of a row are asked for. */
    final boolean wantsBytes;
    final boolean wantsTimes;
    final boolean wantsOffsets;

    private final ColumnarBatch batch;
    private final TopicPartition at;
    private int timestampType;

    private byte[] bytes;
    private int rows;
    private int[] keyAt = new int[0];
    private int[] keyLength = new int[0];
    private int[] valueAt = new int[0];
    private int[] valueLength = new int[0];
    private int[] headersAt = new int[0];
    private long[] offsets = new long[0];
    private long[] timesMs = new long[0];

    RecordBlock(StructType columns, TopicPartition at) {
        this.at = at;
        ColumnVector[] vectors = Arrays.stream(columns.fields()).map(this::vector).toArray(ColumnVector[]::new);
        this.batch = new ColumnarBatch(vectors);
        this.wantsBytes = Arrays.stream(columns.fieldNames())
                .anyMatch(name -> name.equals("key") || name.equals("value") || name.equals("headers"));
        this.wantsTimes = Arrays.asList(columns.fieldNames()).contains("timestamp");
        this.wantsOffsets = Arrays.asList(columns.fieldNames()).contains("offset");
    }

    private ColumnVector vector(StructField field) {
        return switch (field.name()) {
            case "key" -> new Bytes(field.dataType(), true);
            case "value" -> new Bytes(field.dataType(), false);
            case "offset", "timestamp" -> new Numbers(field.dataType(), field.name().equals("timestamp"));
            case "timestampType" -> new TimestampType();
            case "headers" -> new Headers();
            default -> constant(field);
        };
    }

    private ColumnVector constant(StructField field) {
        ConstantColumnVector vector = new ConstantColumnVector(1, field.dataType());
        if (field.name().equals("topic")) {
            vector.setUtf8String(UTF8String.fromString(at.topic()));
        } else {
            vector.setInt(at.partition());
        }
        return vector;
    }

    // --- filling -----------------------------------------------------------------------------------------------------

    /** Forgets all rows. */
    void clear() {
        rows = 0;
        bytes = null;
    }

    /** Where the bytes of all rows are, and the kind of their time: 0 of creation, 1 of append. */
    void within(byte[] array, int typeOfTime) {
        bytes = array;
        timestampType = typeOfTime;
    }

    /** Whether rows of this array, with this kind of time, may be added. */
    boolean takes(byte[] array, int typeOfTime) {
        return rows == 0 || bytes == array && timestampType == typeOfTime;
    }

    int rows() {
        return rows;
    }

    void addCounted(int count) {
        rows += count;
    }

    /** Room for so many more rows. */
    void reserve(int more) {
        int needed = rows + more;
        if (offsets.length < needed) {
            int size = Math.max(ROWS_FIRST, Math.max(needed, 2 * offsets.length));
            offsets = Arrays.copyOf(offsets, size);
            timesMs = Arrays.copyOf(timesMs, size);
            if (wantsBytes) {
                keyAt = Arrays.copyOf(keyAt, size);
                keyLength = Arrays.copyOf(keyLength, size);
                valueAt = Arrays.copyOf(valueAt, size);
                valueLength = Arrays.copyOf(valueLength, size);
                headersAt = Arrays.copyOf(headersAt, size);
            }
        }
    }

    /** A row of which no bytes are asked for. */
    void add(long offset, long timeMs) {
        offsets[rows] = offset;
        timesMs[rows++] = timeMs;
    }

    /** A length of -1 is null. {@code headers}: where their count is. */
    void add(long offset, long timeMs, int key, int keySize, int value, int valueSize, int headers) {
        keyAt[rows] = key;
        keyLength[rows] = keySize;
        valueAt[rows] = value;
        valueLength[rows] = valueSize;
        headersAt[rows] = headers;
        add(offset, timeMs);
    }

    /** Of a row, where its bytes, its time or its offset are asked for. */
    long offset(int row) {
        return offsets[row];
    }

    /** The same, in ms since 1970. */
    long timeMs(int row) {
        return timesMs[row];
    }

    /** The columns of the rows, until this is cleared. */
    ColumnarBatch batch() {
        batch.setNumRows(rows);
        return batch;
    }

    // --- columns -----------------------------------------------------------------------------------------------------

    private final class Bytes extends LazyColumn {
        private final boolean isKey;

        private Bytes(DataType type, boolean isKey) {
            super(type);
            this.isKey = isKey;
        }

        @Override
        public int numNulls() {
            return countNulls(rows);
        }

        @Override
        public boolean hasNull() {
            return true;
        }

        @Override
        public boolean isNullAt(int row) {
            return (isKey ? keyLength : valueLength)[row] < 0;
        }

        @Override
        public byte[] getBinary(int row) {
            int length = (isKey ? keyLength : valueLength)[row];
            int from = (isKey ? keyAt : valueAt)[row];
            return length < 0 ? null : Arrays.copyOfRange(bytes, from, from + length);
        }
    }

    private final class Numbers extends LazyColumn {
        private final boolean isTime;

        private Numbers(DataType type, boolean isTime) {
            super(type);
            this.isTime = isTime;
        }

        @Override
        public long getLong(int row) {
            return isTime ? timesMs[row] * US_PER_MS : offsets[row];
        }
    }

    private final class TimestampType extends LazyColumn {
        private TimestampType() {
            super(DataTypes.IntegerType);
        }

        @Override
        public int getInt(int row) {
            return timestampType;
        }
    }

    private final class Headers extends LazyColumn {
        private Headers() {
            super(Columns.HEADERS);
        }

        private HeaderColumns at(int row) {
            return HeaderColumns.read(bytes, headersAt[row]);
        }

        @Override
        public int numNulls() {
            return countNulls(rows);
        }

        @Override
        public boolean hasNull() {
            return true;
        }

        /** A record without headers has none, as in Spark's Kafka connector. */
        @Override
        public boolean isNullAt(int row) {
            return bytes[headersAt[row]] == 0;
        }

        @Override
        public ColumnarArray getArray(int row) {
            HeaderColumns headers = at(row);
            return new ColumnarArray(headers, 0, headers.count());
        }
    }
}
