package io.raftlake.spark.connector.read;

import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;

/** Some rows of a column of a table. */
final class SelectedRows extends LazyColumn {
    private final ColumnVector column;
    private final int[] rows;

    SelectedRows(ColumnVector column, int[] rows) {
        super(column.dataType());
        this.column = column;
        this.rows = rows;
    }

    /** May say so although the selected rows have none. */
    @Override
    public boolean hasNull() {
        return column.hasNull();
    }

    @Override
    public int numNulls() {
        return countNulls(rows.length);
    }

    @Override
    public boolean isNullAt(int row) {
        return column.isNullAt(rows[row]);
    }

    @Override
    public int getInt(int row) {
        return column.getInt(rows[row]);
    }

    @Override
    public long getLong(int row) {
        return column.getLong(rows[row]);
    }

    @Override
    public byte[] getBinary(int row) {
        return column.getBinary(rows[row]);
    }

    @Override
    public ColumnarArray getArray(int row) {
        return column.getArray(rows[row]);
    }
}
