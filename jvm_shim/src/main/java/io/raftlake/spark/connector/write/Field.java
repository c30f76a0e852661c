package io.raftlake.spark.connector.write;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** The bytes of one column of one row, where they are: nothing is copied. Used again for each row. */
final class Field {
    private final int ordinal;
    private final boolean isBinary;
    private Object base;
    private long offset;

    /** -1 where the column is null. */
    private int length;

    /** {@code ordinal} -1: always null. */
    Field(int ordinal, boolean isBinary) {
        this.ordinal = ordinal;
        this.isBinary = isBinary;
    }

    void read(InternalRow row) {
        if (ordinal < 0 || row.isNullAt(ordinal)) {
            base = null;
            length = -1;
        } else if (row instanceof UnsafeRow unsafe) {
            long place = unsafe.getLong(ordinal);
            set(unsafe.getBaseObject(), unsafe.getBaseOffset() + (place >>> 32), (int) place);
        } else if (isBinary) {
            byte[] bytes = row.getBinary(ordinal);
            set(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
        } else {
            UTF8String text = row.getUTF8String(ordinal);
            set(text.getBaseObject(), text.getBaseOffset(), text.numBytes());
        }
    }

    private void set(Object newBase, long newOffset, int newLength) {
        base = newBase;
        offset = newOffset;
        length = newLength;
    }

    boolean isNull() {
        return length < 0;
    }

    /** -1 for null. */
    int length() {
        return length;
    }

    void copyTo(byte[] into, int at) {
        Platform.copyMemory(base, offset, into, Platform.BYTE_ARRAY_OFFSET + at, length);
    }

    int partition(int partitions) {
        return Murmur2.partition(base, offset, length, partitions);
    }

    /** As text; it is of use for as long as the row is. */
    UTF8String text() {
        return UTF8String.fromAddress(base, offset, length);
    }
}
