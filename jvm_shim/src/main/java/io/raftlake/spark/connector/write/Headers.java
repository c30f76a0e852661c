package io.raftlake.spark.connector.write;

import java.io.ByteArrayOutputStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;

/** The headers of one row, encoded. Used again for each row. */
final class Headers {
    private static final byte[] NONE = {0};
    private static final int FIELDS = 2;

    private final int ordinal;
    private byte[] encoded = NONE;

    /** {@code ordinal} -1: there are none. */
    Headers(int ordinal) {
        this.ordinal = ordinal;
    }

    /** {@link InvalidRowException} for a header without a key. */
    void read(InternalRow row) {
        encoded = ordinal < 0 || row.isNullAt(ordinal) ? NONE : encode(row.getArray(ordinal));
    }

    private static byte[] encode(ArrayData headers) {
        if (headers.numElements() == 0) {
            return NONE;
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream(64);
        varint(out, headers.numElements());
        for (int index = 0; index < headers.numElements(); index++) {
            InternalRow header = headers.isNullAt(index) ? null : headers.getStruct(index, FIELDS);
            if (header == null || header.isNullAt(0)) {
                throw new InvalidRowException("column headers: a header has no key");
            }
            field(out, header.getUTF8String(0).getBytes());
            field(out, header.isNullAt(1) ? null : header.getBinary(1));
        }
        return out.toByteArray();
    }

    private static void field(ByteArrayOutputStream out, byte[] value) {
        varint(out, value == null ? -1 : value.length);
        if (value != null) {
            out.writeBytes(value);
        }
    }

    private static void varint(ByteArrayOutputStream out, int value) {
        int left = value << 1 ^ value >> 31;
        while ((left & ~0x7F) != 0) {
            out.write(left & 0x7F | 0x80);
            left >>>= 7;
        }
        out.write(left);
    }

    int bytes() {
        return encoded.length;
    }

    /** The place behind them. */
    int copyTo(byte[] into, int at) {
        System.arraycopy(encoded, 0, into, at, encoded.length);
        return at + encoded.length;
    }
}
