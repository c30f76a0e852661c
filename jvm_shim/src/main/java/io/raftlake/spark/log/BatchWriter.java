package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.LogRecord;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.zip.CRC32C;

/** Makes record batches of format v2. The leader writes base offset and leader epoch, which the checksum does not cover. */
final class BatchWriter {
    /** Smaller ones are not worth the work, nor the bytes of a frame. */
    static final int COMPRESSED_BYTES_MIN = 4096;

    private static final int MAGIC = 2;
    private static final int NO_EPOCH = -1;

    private BatchWriter() {}

    /** A batch of these records at a time in ms, without a producer. What a codec does not make smaller is left as it is. */
    static byte[] batch(List<LogRecord> records, Codec codec, long timestampMs) throws IOException {
        Out content = new Out();
        Out record = new Out();
        for (int index = 0; index < records.size(); index++) {
            record.clear();
            encode(record, records.get(index), index);
            content.varint(record.size()).append(record);
        }
        byte[] batch = unsealed(content.array(), content.size(), records.size(), codec, timestampMs);
        seal(ByteBuffer.wrap(batch));
        return batch;
    }

    /** The same of the first {@code size} bytes of encoded records, without a checksum, which {@link #stamp} writes. */
    static byte[] unsealed(byte[] content, int size, int records, Codec codec, long timestampMs) throws IOException {
        byte[] payload = null;
        if (codec != Codec.NONE && size >= COMPRESSED_BYTES_MIN) {
            byte[] compressed = codec.compress(content, size);
            payload = compressed.length < size ? compressed : null;
        }
        int attributes = payload == null ? 0 : codec.ordinal();
        int bytes = payload == null ? size : payload.length;
        ByteBuffer batch = ByteBuffer.allocate(Batches.HEADER_BYTES + bytes);
        batch.putLong(0).putInt(batch.capacity() - Batches.PREFIX_BYTES).putInt(NO_EPOCH).put((byte) MAGIC).putInt(0);
        batch.putShort((short) attributes).putInt(records - 1).putLong(timestampMs).putLong(timestampMs);
        batch.putLong(-1).putShort((short) -1).putInt(-1).putInt(records);
        batch.put(payload == null ? content : payload, 0, bytes);
        return batch.array();
    }

    private static void encode(Out out, LogRecord record, int offsetDelta) {
        out.i8(0).varint(0).varint(offsetDelta).field(record.key()).field(record.value()).varint(record.headers().size());
        for (Logs.Header header : record.headers()) {
            out.field(header.key().getBytes(StandardCharsets.UTF_8)).field(header.value());
        }
    }

    /** Writes the producer into a batch. */
    static void stamp(byte[] batch, ProducerId producer, int sequence) {
        ByteBuffer into = ByteBuffer.wrap(batch);
        into.putLong(Batches.PRODUCER_ID_AT, producer.id());
        into.putShort(Batches.PRODUCER_EPOCH_AT, producer.epoch());
        into.putInt(Batches.BASE_SEQUENCE_AT, sequence);
        seal(into);
    }

    /** The same, and the batch belongs to the producer's transaction. */
    static void stampTransactional(byte[] batch, ProducerId producer, int sequence) {
        batch[Batches.ATTRIBUTES_AT + 1] |= Batches.TRANSACTIONAL;
        stamp(batch, producer, sequence);
    }

    private static void seal(ByteBuffer batch) {
        CRC32C crc = new CRC32C();
        crc.update(batch.array(), Batches.CRC_FROM, batch.capacity() - Batches.CRC_FROM);
        batch.putInt(Batches.CRC_AT, (int) crc.getValue());
    }
}
