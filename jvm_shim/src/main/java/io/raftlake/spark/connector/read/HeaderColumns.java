package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Columns;
import java.util.Arrays;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.types.UTF8String;

/** The headers of one record: a struct of key and value for each. */
final class HeaderColumns extends LazyColumn {
    private final Part keys;
    private final Part values;

    private HeaderColumns(Part keys, Part values) {
        super(Columns.HEADERS.elementType());
        this.keys = keys;
        this.values = values;
    }

    /** Those whose count stands at a place. */
    static HeaderColumns read(byte[] bytes, int at) {
        Varints in = new Varints();
        in.bytes = bytes;
        in.at = at;
        int count = in.varint();
        Part keys = new Part(bytes, count, true);
        Part values = new Part(bytes, count, false);
        for (int index = 0; index < count; index++) {
            keys.read(in, index);
            values.read(in, index);
        }
        return new HeaderColumns(keys, values);
    }

    int count() {
        return keys.from.length;
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        return ordinal == 0 ? keys : values;
    }

    private static final class Part extends LazyColumn {
        private final byte[] bytes;
        private final int[] from;
        private final int[] lengths;

        private Part(byte[] bytes, int count, boolean isKey) {
            super(isKey ? DataTypes.StringType : DataTypes.BinaryType);
            this.bytes = bytes;
            this.from = new int[count];
            this.lengths = new int[count];
        }

        private void read(Varints in, int index) {
            lengths[index] = in.varint();
            from[index] = in.at;
            in.at += Math.max(0, lengths[index]);
        }

        @Override
        public int numNulls() {
            return (int) Arrays.stream(lengths).filter(length -> length < 0).count();
        }

        @Override
        public boolean isNullAt(int row) {
            return lengths[row] < 0;
        }

        @Override
        public byte[] getBinary(int row) {
            return lengths[row] < 0 ? null : Arrays.copyOfRange(bytes, from[row], from[row] + lengths[row]);
        }

        /** A copy: Spark may keep texts. */
        @Override
        public UTF8String getUTF8String(int row) {
            return UTF8String.fromBytes(getBinary(row));
        }
    }
}
