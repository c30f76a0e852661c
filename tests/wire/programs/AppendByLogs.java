import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.Codec;
import io.raftlake.spark.log.KafkaLogs;
import io.raftlake.spark.log.LogSettings;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Appends by the jar's log client until stdin is closed: `append SERVERS TOPIC`. Each number goes to every partition. What it says
 * is told in tests/kits/outcomekit.py. `codecs SERVERS TOPIC` appends a batch for each codec, and `read SERVERS TOPIC` prints
 * `PARTITION VALUE` of each record.
 */
public class AppendByLogs {
    static final int PARTITIONS = 6;
    static volatile boolean closed;

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static Logs logs(String servers, Codec codec) {
        return new KafkaLogs(new LogSettings(Bootstrap.parse(servers), 60_000, codec));
    }

    static void append(Logs logs, String topic) throws Exception {
        for (int number = 0; !closed; number++) {
            System.out.println("begun " + number);
            try {
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    byte[] value = utf8(Integer.toString(number));
                    logs.append(new Partition(topic, partition), List.of(LogRecord.of(null, value)));
                }
                System.out.println("committed " + number);
            } catch (UnknownOutcomeException unknown) {
                System.err.println(number + " " + unknown);
            }
        }
    }

    static void read(Logs logs, String topic) throws Exception {
        for (int partition = 0; partition < PARTITIONS; partition++) {
            Partition at = new Partition(topic, partition);
            long end = logs.end(at);
            for (long offset = 0; offset < end; ) {
                Logs.Fetched got = logs.fetch(at, offset, 1 << 20, 1000);
                for (Logs.Numbered each : got.records()) {
                    System.out.println(partition + " " + new String(each.record().value(), StandardCharsets.UTF_8));
                }
                offset = got.nextOffset();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        String servers = args[1];
        String topic = args[2];
        switch (args[0]) {
            case "read" -> read(logs(servers, Codec.NONE), topic);
            case "codecs" -> {
                for (Codec codec : Codec.values()) {
                    String name = codec.name().toLowerCase(java.util.Locale.ROOT);
                    List<LogRecord> records = List.of(
                            new LogRecord(utf8(name), utf8("late, ".repeat(40_000)), List.of(new Logs.Header("h", utf8("1")))),
                            LogRecord.of(null, utf8(name)));
                    logs(servers, codec).append(new Partition(topic, 0), records);
                }
            }
            default -> {
                Thread watch = new Thread(() -> {
                    try {
                        while (System.in.read() >= 0) {
                            continue;
                        }
                    } catch (java.io.IOException gone) {
                        // Closed too.
                    }
                    closed = true;
                });
                watch.setDaemon(true);
                watch.start();
                append(logs(servers, Codec.NONE), topic);
            }
        }
    }
}
