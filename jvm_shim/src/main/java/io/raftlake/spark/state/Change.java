package io.raftlake.spark.state;

import io.raftlake.spark.log.Logs.Header;
import io.raftlake.spark.log.Logs.LogRecord;
import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.execution.streaming.state.RecordType$;
import scala.Enumeration;
import scala.Tuple3;

/**
 * A change of state as a record. The key is the one of RocksDB: with column families its first bytes name the family, as Spark
 * writes them. A put has its value, and a removal none. The two rarer kinds have a header {@code op}: {@code merge} (the value
 * is appended to that of the key) and {@code range} (the value is the key behind the last one that is removed).
 */
final class Change {
    private static final String OP = "op";
    private static final List<Header> MERGE = List.of(new Header(OP, new byte[] {'m', 'e', 'r', 'g', 'e'}));
    private static final List<Header> RANGE = List.of(new Header(OP, new byte[] {'r', 'a', 'n', 'g', 'e'}));

    private Change() {}

    // Spark may use its arrays again once a call has returned.

    static LogRecord put(byte[] key, byte[] value) {
        return LogRecord.of(key.clone(), value.clone());
    }

    static LogRecord delete(byte[] key) {
        return LogRecord.of(key.clone(), null);
    }

    static LogRecord merge(byte[] key, byte[] value) {
        return new LogRecord(key.clone(), value.clone(), MERGE);
    }

    static LogRecord deleteRange(byte[] begin, byte[] end) {
        return new LogRecord(begin.clone(), end.clone(), RANGE);
    }

    /** As Spark replays it. */
    static Tuple3<Enumeration.Value, byte[], byte[]> decode(LogRecord record) throws IOException {
        return new Tuple3<>(type(record), record.key(), record.value());
    }

    private static Enumeration.Value type(LogRecord record) throws IOException {
        if (record.value() == null) {
            return RecordType$.MODULE$.DELETE_RECORD();
        }
        if (record.headers().isEmpty()) {
            return RecordType$.MODULE$.PUT_RECORD();
        }
        byte[] op = record.headers().get(0).value();
        return switch (op == null || op.length == 0 ? 0 : op[0]) {
            case 'm' -> RecordType$.MODULE$.MERGE_RECORD();
            case 'r' -> RecordType$.MODULE$.DELETE_RANGE_RECORD();
            default -> throw new IOException("a record of a changelog has an unknown header '" + OP + "'");
        };
    }

    /** About the bytes that the record takes in a batch: at least as many. */
    static int bytes(LogRecord record) {
        int value = record.value() == null ? 0 : record.value().length;
        int key = record.key() == null ? 0 : record.key().length;
        return key + value + 48;
    }
}
