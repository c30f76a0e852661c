import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/** Prints what Kafka's own classes find in a file of record batches: one line a record, tab-separated, after checking each CRC. */
public final class ReadBatches {
    private static String text(ByteBuffer buffer) {
        return buffer == null ? "null" : "'" + StandardCharsets.UTF_8.decode(buffer.duplicate()) + "'";
    }

    public static void main(String[] arguments) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0]))));
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                StringBuilder line = new StringBuilder();
                line.append(batch.compressionType().name).append('\t').append(record.offset()).append('\t');
                line.append(record.timestamp()).append('\t').append(text(record.key())).append('\t').append(text(record.value()));
                for (Header header : record.headers()) {
                    ByteBuffer value = header.value() == null ? null : ByteBuffer.wrap(header.value());
                    line.append('\t').append(header.key()).append('=').append(text(value));
                }
                System.out.println(line);
            }
        }
    }
}
