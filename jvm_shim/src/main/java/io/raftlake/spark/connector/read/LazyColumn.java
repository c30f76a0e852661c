package io.raftlake.spark.connector.read;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column whose values are made when they are asked for. A subclass answers for the kind of values that it has. */
abstract class LazyColumn extends ColumnVector {
    LazyColumn(DataType type) {
        super(type);
    }

    /** Its bytes belong to the reader, which uses them again. */
    @Override
    public void close() {
        // Nothing is held.
    }

    /** Spark calls it behind each batch. */
    @Override
    public void closeIfFreeable() {
        // The next batch has the same columns.
    }

    @Override
    public boolean hasNull() {
        return numNulls() > 0;
    }

    @Override
    public int numNulls() {
        return 0;
    }

    @Override
    public boolean isNullAt(int row) {
        return false;
    }

    /** Of the first {@code rows}, for a {@link #numNulls} that has to look. */
    final int countNulls(int rows) {
        int count = 0;
        for (int row = 0; row < rows; row++) {
            count += isNullAt(row) ? 1 : 0;
        }
        return count;
    }

    private UnsupportedOperationException other() {
        return new UnsupportedOperationException("a column of " + dataType().simpleString() + " has no such values");
    }

    @Override
    public boolean getBoolean(int row) {
        throw other();
    }

    @Override
    public byte getByte(int row) {
        throw other();
    }

    @Override
    public short getShort(int row) {
        throw other();
    }

    @Override
    public int getInt(int row) {
        throw other();
    }

    @Override
    public long getLong(int row) {
        throw other();
    }

    @Override
    public float getFloat(int row) {
        throw other();
    }

    @Override
    public double getDouble(int row) {
        throw other();
    }

    @Override
    public ColumnarArray getArray(int row) {
        throw other();
    }

    @Override
    public ColumnarMap getMap(int row) {
        throw other();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
        throw other();
    }

    @Override
    public UTF8String getUTF8String(int row) {
        throw other();
    }

    @Override
    public byte[] getBinary(int row) {
        throw other();
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        throw other();
    }
}
