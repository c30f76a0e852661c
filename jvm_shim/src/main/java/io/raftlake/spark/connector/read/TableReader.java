package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.connector.table.TableFile;
import java.io.IOException;
import java.util.Arrays;
import org.apache.hadoop.fs.Path;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Map$;

/**
 * Executor: a range of offsets from the files of a topic's table. Each row is handed out once, in the order of their offsets;
 * an IOException where a file does not show one.
 *
 * <p>We write the rows of a file in that order. OPTIMIZE of other programs merges files in any order. Such a file is read
 * again from its begin for each run of rows that lies before the one that was handed out.
 */
final class TableReader implements AutoCloseable {
    /** What a row of the table is: a record, a control record, a record of an aborted transaction. */
    private static final int KIND_DATA = 0;
    private static final int KIND_ABORTED = 2;

    /** A file that needs more is left to the nodes, which sort its rows. */
    static final int PASSES_MAX = 32;

    private final TablePiece piece;
    private final StructType columns;
    private final TopicPartition at;
    private final long end;
    private final boolean readsCommitted;
    private final int offsetColumn;
    private final int kindColumn;

    private PartitionReader<ColumnarBatch> reader;
    private TableFile file;
    private int index;
    private int passes;
    private long passStart;
    private long position;
    private int[] selected = new int[0];
    private ColumnarBatch batch;

    TableReader(TablePiece piece, OffsetRange range, StructType columns, boolean readsCommitted) {
        this.piece = piece;
        this.columns = columns;
        this.at = range.at();
        this.position = range.start();
        this.end = range.end();
        this.readsCommitted = readsCommitted;
        StructType read = piece.parquet().readDataSchema();
        this.offsetColumn = read.fieldIndex("offset");
        this.kindColumn = read.fieldIndex("kind");
    }

    /** The offset behind all rows that were handed out, and behind those that nobody asks for. */
    long position() {
        return position;
    }

    ColumnarBatch batch() {
        return batch;
    }

    /** Goes to the next rows; false where the range has no more. */
    boolean next() throws IOException {
        while (position < end) {
            if (reader == null) {
                open();
            }
            if (position == file.end() || !reader.next()) {
                endPass();
            } else if (select(reader.get())) {
                return true;
            }
        }
        return false;
    }

    private void open() throws IOException {
        while (index < piece.files().size() && piece.files().get(index).end() <= position) {
            index++;
            passes = 0;
        }
        if (index == piece.files().size() || piece.files().get(index).offsetMin() > position) {
            throw missing();
        }
        file = piece.files().get(index);
        passes++;
        passStart = position;
        SparkPath path = SparkPath.fromPath(new Path(file.path()));
        PartitionedFile part = new PartitionedFile(InternalRow.empty(), path, 0, file.size(), new String[0], 0, file.size(),
                Map$.MODULE$.empty());
        reader = piece.parquet().buildColumnarReader(part);
    }

    private void endPass() throws IOException {
        close();
        if (position == passStart) {
            throw missing();
        }
        if (position < file.end() && passes == PASSES_MAX) {
            throw new IOException(file.path() + " holds its rows in another order than that of their offsets");
        }
    }

    private IOException missing() {
        return new IOException((file == null ? "the table" : file.path()) + " does not show offset " + position + " of " + at);
    }

    /** Of rows of a file those that are wanted; false for none. */
    private boolean select(ColumnarBatch rows) {
        ColumnVector offsets = rows.column(offsetColumn);
        ColumnVector kinds = rows.column(kindColumn);
        if (selected.length < rows.numRows()) {
            selected = new int[rows.numRows()];
        }
        int count = 0;
        long stop = Math.min(end, file.end());
        for (int row = 0; row < rows.numRows() && position < stop; row++) {
            if (offsets.getLong(row) != position) {
                continue;
            }
            position++;
            int kind = kinds.getByte(row);
            if (kind == KIND_DATA || kind == KIND_ABORTED && !readsCommitted) {
                selected[count++] = row;
            }
        }
        if (count > 0) {
            batch = batch(rows, count);
        }
        return count > 0;
    }

    private ColumnarBatch batch(ColumnarBatch rows, int count) {
        StructType read = piece.parquet().readDataSchema();
        boolean isWhole = count == rows.numRows();
        int[] picked = isWhole ? null : Arrays.copyOf(selected, count);
        ColumnVector[] vectors = new ColumnVector[columns.length()];
        for (int index = 0; index < vectors.length; index++) {
            String name = columns.fieldNames()[index];
            if (name.equals("topic") || name.equals("partition")) {
                vectors[index] = constant(index, name);
            } else {
                ColumnVector column = rows.column(read.fieldIndex(name));
                vectors[index] = isWhole ? column : new SelectedRows(column, picked);
            }
        }
        return new ColumnarBatch(vectors, count);
    }

    private ColumnVector constant(int index, String name) {
        ConstantColumnVector vector = new ConstantColumnVector(1, columns.fields()[index].dataType());
        if (name.equals("topic")) {
            vector.setUtf8String(UTF8String.fromString(at.topic()));
        } else {
            vector.setInt(at.partition());
        }
        return vector;
    }

    @Override
    public void close() throws IOException {
        if (reader != null) {
            reader.close();
            reader = null;
        }
    }
}
