import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;

/**
 * Prints record batches made by Kafka's own classes, one "name hex" a line: the content of batches.txt.
 * java -cp '.cache/kafka-4.3.1/*' tests/golden/MakeBatches.java > tests/golden/batches.txt
 */
public final class MakeBatches {
    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void print(String name, MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] content = new byte[buffer.remaining()];
        buffer.get(content);
        System.out.println(name + " " + HexFormat.of().formatHex(content));
    }

    public static void main(String[] arguments) {
        Header[] headers = {new RecordHeader("h", bytes("1")), new RecordHeader("é", (byte[]) null)};
        SimpleRecord[] records = {
            new SimpleRecord(1_700_000_000_000L, bytes("key"), bytes("value"), headers),
            new SimpleRecord(1_700_000_000_005L, null, bytes("")),
            new SimpleRecord(1_699_999_999_990L, bytes(""), (byte[]) null),
            new SimpleRecord(1_700_000_100_000L, bytes("k"), bytes("delayed ".repeat(100))),
        };
        for (CompressionType type : CompressionType.values()) {
            print(type.name, MemoryRecords.withIdempotentRecords(
                (byte) 2, 40L, Compression.of(type).build(), 5L, (short) 3, 9, 7, records));
        }
        SimpleRecord[] ofOneTime = {
            new SimpleRecord(1_700_000_000_000L, bytes("key"), bytes("value"), headers),
            new SimpleRecord(1_700_000_000_000L, null, bytes("")),
            new SimpleRecord(1_700_000_000_000L, bytes(""), (byte[]) null),
            new SimpleRecord(1_700_000_000_000L, bytes("k"), bytes("delayed ".repeat(100))),
        };
        print("one-time", MemoryRecords.withIdempotentRecords(
            (byte) 2, 40L, Compression.NONE, 5L, (short) 3, 9, 7, ofOneTime));
        print("log-append-time", MemoryRecords.withRecords(
            (byte) 2, 40L, Compression.NONE, TimestampType.LOG_APPEND_TIME, -1L, (short) -1, -1, 7, false, records[0]));
        LeaderChangeMessage change = new LeaderChangeMessage()
            .setVersion((short) 0)
            .setLeaderId(2)
            .setVoters(java.util.List.of(new LeaderChangeMessage.Voter().setVoterId(1), new LeaderChangeMessage.Voter().setVoterId(2)))
            .setGrantingVoters(java.util.List.of(new LeaderChangeMessage.Voter().setVoterId(2)));
        print("leader-change", MemoryRecords.withLeaderChangeMessage(
            41L, 1_700_000_000_000L, 6, ByteBuffer.allocate(512), change));
    }
}
