package io.raftlake.spark.connector.read;

import io.raftlake.spark.log.Batches;
import io.raftlake.spark.log.RangeFetches.Got;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * The records of one fetch as blocks of columns. Where no column needs the bytes of records, batches are counted, and not read.
 * Batches that are compressed are gathered in an array of their own.
 */
final class RecordDecoder {
    /** Rows of one block are handed on when their decompressed bytes are as many. */
    private static final int DECOMPRESSED_BYTES_ENOUGH = 16 << 20;

    private static final byte[] NO_BYTES = {};

    private final Batches batches;
    private final RecordBlock block;
    private final long start;
    private final long end;
    private final Varints in = new Varints();

    private byte[] gathered = NO_BYTES;
    private int gatheredSize;
    private boolean isAtBatch;
    private long next;

    /** Of offsets [start, end); the first batch may begin below. */
    RecordDecoder(Got got, long start, long end, RecordBlock block) {
        this.batches = new Batches(got.data(), got.aborted());
        this.block = block;
        this.start = start;
        this.end = end;
        this.next = start;
    }

    /** The offset behind all blocks that were filled so far, and behind what holds no records. */
    long next() {
        return next;
    }

    /**
     * Fills the block with more rows; false where the fetch has none. An IOException for a batch that is damaged: the rows of
     * the batches before it stay unread.
     */
    boolean fill() throws IOException {
        block.clear();
        gatheredSize = 0;
        long reached = next;
        while (isAtBatch || batches.next() && (isAtBatch = batches.baseOffset() < end)) {
            if (batches.lastOffset() >= next && !add()) {
                break;
            }
            isAtBatch = false;
            reached = Math.max(reached, Math.min(end, batches.lastOffset() + 1));
        }
        if (!isAtBatch) {
            reached = Math.max(reached, Math.min(end, batches.nextOffset()));
        }
        next = reached;
        return block.rows() > 0;
    }

    /** False where this batch is one of the next block. */
    private boolean add() throws IOException {
        int typeOfTime = batches.hasLogAppendTime() ? 1 : 0;
        boolean isDense = batches.lastOffset() - batches.baseOffset() + 1 == batches.count();
        boolean isRead = block.wantsBytes || block.wantsTimes && typeOfTime == 0 || !isDense;
        if (!isRead) {
            if (!block.takes(NO_BYTES, typeOfTime)) {
                return false;
            }
            block.within(NO_BYTES, typeOfTime);
            addNumbered();
            return true;
        }
        ByteBuffer records = batches.records();
        if (!batches.isCompressed()) {
            if (!block.takes(records.array(), typeOfTime)) {
                return false;
            }
            block.within(records.array(), typeOfTime);
            addRecords(records.array(), records.arrayOffset() + records.position(), records.remaining());
            return true;
        }
        boolean isOther = block.rows() > 0 && !block.takes(gathered, typeOfTime);
        if (isOther || gatheredSize > 0 && gatheredSize + records.remaining() > DECOMPRESSED_BYTES_ENOUGH) {
            return false;
        }
        int at = gather(records);
        block.within(gathered, typeOfTime);
        addRecords(gathered, at, records.remaining());
        return true;
    }

    private int gather(ByteBuffer records) {
        int at = gatheredSize;
        int size = at + records.remaining();
        if (gathered.length < size) {
            gathered = Arrays.copyOf(gathered, Math.max(size, Math.min(DECOMPRESSED_BYTES_ENOUGH, 2 * size)));
        }
        records.duplicate().get(gathered, at, records.remaining());
        gatheredSize = size;
        return at;
    }

    /** All offsets of a batch without gaps. */
    private void addNumbered() {
        long from = Math.max(start, batches.baseOffset());
        long until = Math.min(end, batches.lastOffset() + 1);
        if (!block.wantsOffsets && !block.wantsTimes) {
            block.addCounted((int) Math.max(0, until - from));
            return;
        }
        block.reserve((int) Math.max(0, until - from));
        for (long offset = from; offset < until; offset++) {
            block.add(offset, batches.maxTimestampMs());
        }
    }

    private void addRecords(byte[] bytes, int from, int size) throws IOException {
        block.reserve(batches.count());
        in.bytes = bytes;
        in.at = from;
        try {
            for (int left = batches.count(); left > 0; left--) {
                int length = in.varint();
                int behind = in.at + length;
                if (length < 0 || behind < in.at || behind > from + size) {
                    throw new IndexOutOfBoundsException("a record of " + length + " bytes");
                }
                addRecord(behind);
                in.at = behind;
            }
        } catch (IndexOutOfBoundsException damaged) {
            String told = "the batch at offset " + batches.baseOffset() + " is damaged: " + damaged.getMessage();
            throw new IOException(told, damaged);
        }
    }

    /** Its fields: attributes, time, offset, key, value, headers. */
    private void addRecord(int behind) {
        in.at++;
        long delta = in.varlong();
        long timeMs = batches.hasLogAppendTime() ? batches.maxTimestampMs() : batches.baseTimestampMs() + delta;
        long offset = batches.baseOffset() + in.varint();
        if (offset < start || offset >= end) {
            return;
        }
        if (!block.wantsBytes) {
            block.add(offset, timeMs);
            return;
        }
        int keyLength = in.varint();
        int key = in.at;
        in.at += Math.max(0, keyLength);
        int valueLength = in.varint();
        int value = in.at;
        in.at += Math.max(0, valueLength);
        if (in.at >= behind || in.at < key) {
            throw new IndexOutOfBoundsException("the record at offset " + offset + " ends early");
        }
        block.add(offset, timeMs, key, keyLength, value, valueLength, in.at);
    }
}
