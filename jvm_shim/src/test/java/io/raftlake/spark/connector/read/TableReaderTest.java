package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.connector.table.TableFile;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.LongStream;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Files of one partition, whose rows lie in any order, and come in batches of any size. */
@Tag("memory")
class TableReaderTest {
    private static final StructType COLUMNS = new StructType().add("offset", DataTypes.LongType);
    private static final byte DATA = 0;
    private static final byte CONTROL = 1;

    private final List<long[]> files = new ArrayList<>();
    private final List<TableFile> told = new ArrayList<>();
    private final List<Long> handedOut = new ArrayList<>();
    private long control = -1;
    private int opened;
    private TableReader reader;

    /** A reader of Spark's for each file; three rows are a batch. */
    private final class Readers extends ParquetPartitionReaderFactory {
        private static final int BATCH_ROWS = 3;
        private static final long serialVersionUID = 1;

        private Readers(StructType read) {
            super(SQLConf.get(), null, read, read, new StructType(), new Filter[0], scala.Option.empty(),
                    new ParquetOptions(scala.collection.immutable.Map$.MODULE$.<String, String>empty(), SQLConf.get()));
        }

        @Override
        public PartitionReader<ColumnarBatch> buildColumnarReader(PartitionedFile file) {
            opened++;
            long[] offsets = files.get((int) file.fileSize());
            return new PartitionReader<>() {
                private int begin = -BATCH_ROWS;

                @Override
                public boolean next() {
                    begin += BATCH_ROWS;
                    return begin < offsets.length;
                }

                @Override
                public ColumnarBatch get() {
                    return batch(offsets, begin, Math.min(offsets.length, begin + BATCH_ROWS));
                }

                @Override
                public void close() {}
            };
        }
    }

    private ColumnarBatch batch(long[] offsets, int begin, int end) {
        OnHeapColumnVector offset = new OnHeapColumnVector(end - begin, DataTypes.LongType);
        OnHeapColumnVector kind = new OnHeapColumnVector(end - begin, DataTypes.ByteType);
        for (int row = begin; row < end; row++) {
            offset.putLong(row - begin, offsets[row]);
            kind.putByte(row - begin, offsets[row] == control ? CONTROL : DATA);
        }
        return new ColumnarBatch(new ColumnVector[] {offset, kind}, end - begin);
    }

    /** A file that its commit says to hold these offsets. */
    private void file(long min, long max, LongStream... parts) {
        told.add(new TableFile("file:/f" + files.size(), files.size(), 0, min, max, null, null));
        files.add(LongStream.concat(parts[0], parts.length == 1 ? LongStream.empty() : parts[1]).toArray());
    }

    private static LongStream run(long begin, long end) {
        return LongStream.range(begin, end);
    }

    private List<Long> read(long start, long end) throws IOException {
        reader = new TableReader(new TablePiece(new Readers(TablePiece.columns(COLUMNS)), told, true),
                new OffsetRange(new TopicPartition("t", 0), start, end), COLUMNS, true);
        while (reader.next()) {
            for (int row = 0; row < reader.batch().numRows(); row++) {
                handedOut.add(reader.batch().column(0).getLong(row));
            }
        }
        return handedOut;
    }

    private static List<Long> offsets(long begin, long end) {
        return run(begin, end).boxed().toList();
    }

    @Test
    void theRowsOfARangeComeFromFilesThatFollowEachOther() throws IOException {
        file(0, 9, run(0, 10));
        file(10, 19, run(10, 20));
        assertEquals(offsets(4, 15), read(4, 15));
        assertEquals(15, reader.position());
        assertEquals(2, opened);
    }

    @Test
    void noRowOfABatchWithAGapIsLost() throws IOException {
        file(0, 9, run(0, 5), run(6, 10));
        String error = assertThrows(IOException.class, () -> read(0, 10)).getMessage();
        assertEquals("file:/f0 does not show offset 5 of t-0", error);
        assertEquals(offsets(0, reader.position()), handedOut, "who goes on elsewhere begins behind what was handed out");
        assertEquals(5, reader.position());
    }

    @Test
    void aGapAtTheBeginOrAtTheEndOfAFileIsTold() {
        file(0, 9, run(1, 10));
        assertThrows(IOException.class, () -> read(0, 10));
        assertEquals(0, reader.position());
        files.set(0, run(0, 9).toArray());
        assertThrows(IOException.class, () -> read(0, 10));
        assertEquals(9, reader.position());
        assertEquals(offsets(0, 9), handedOut);
    }

    @Test
    void aFileThatOptimizeHasMergedIsReadInTheOrderOfOffsets() throws IOException {
        file(0, 34, LongStream.concat(run(15, 35), run(5, 15)), run(0, 5));
        assertEquals(offsets(15, 35), read(15, 35));
        handedOut.clear();
        assertEquals(offsets(0, 35), read(0, 35));
        handedOut.clear();
        assertEquals(offsets(3, 17), read(3, 17));
    }

    @Test
    void aRowThatStandsTwiceIsHandedOutOnce() throws IOException {
        file(0, 9, run(0, 6), run(4, 10));
        assertEquals(offsets(0, 10), read(0, 10));
    }

    @Test
    void rowsThatNobodySeesAreCounted() throws IOException {
        control = 9;
        file(0, 9, run(0, 10));
        assertEquals(offsets(0, 9), read(0, 10));
        assertEquals(10, reader.position());
    }

    /** Each pass hands out one row where they lie in the opposite order. */
    @Test
    void aFileInDisorderIsLeftAfterSomePasses() throws IOException {
        int most = TableReader.PASSES_MAX;
        file(0, most - 1, run(0, most).map(offset -> most - 1 - offset));
        assertEquals(offsets(0, most), read(0, most));
        handedOut.clear();
        opened = 0;
        file(most, 2 * most, run(most, 2 * most + 1).map(offset -> 3 * most - offset));
        String error = assertThrows(IOException.class, () -> read(0, 2 * most + 1)).getMessage();
        assertEquals("file:/f1 holds its rows in another order than that of their offsets", error);
        assertEquals(offsets(0, 2 * most), handedOut);
        assertEquals(2 * most, reader.position());
        assertEquals(2 * most, opened);
    }
}
