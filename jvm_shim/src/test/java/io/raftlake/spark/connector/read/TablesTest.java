package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.log.ScriptedListener;
import java.io.IOException;
import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tables in a store that this machine cannot read. */
@Tag("memory")
@Timeout(60)
class TablesTest {
    private static final String ID = "AAAAAAAAAAAAAAAAAAAAAA";
    private static final TopicPartition AT = new TopicPartition("t", 0);

    private final Configuration conf = new Configuration(false);
    private ScriptedListener node;

    /** Is stopped while it looks for the table. */
    public static final class Stopped extends RawLocalFileSystem {
        @Override
        public void initialize(URI uri, Configuration conf) {
            if (conf.getBoolean("test.keeps.flag", true)) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("it was stopped");
            }
            throw new IllegalStateException(new InterruptedException());
        }
    }

    /** Classes that its own classes need are missing. */
    public static final class Unlinked extends RawLocalFileSystem {
        @Override
        public void initialize(URI uri, Configuration conf) {
            throw new NoClassDefFoundError("software/amazon/awssdk/core/exception/SdkException");
        }
    }

    @BeforeEach
    void start() throws IOException {
        node = new ScriptedListener();
        node.config("remote.storage.enable", "true");
        node.config("raftlake.tier.table.uri", "s3://bucket/raftlake/t-" + ID);
        conf.set("fs.s3a.impl", "org.example.NoSuchFileSystem");
        conf.setBoolean("fs.s3a.impl.disable.cache", true);
    }

    @AfterEach
    void stop() throws IOException {
        node.close();
    }

    private Tables tables(String... pairs) {
        Map<String, String> raw = new HashMap<>(Map.of("kafka.bootstrap.servers", node.servers(), "subscribe", "t"));
        for (int index = 0; index < pairs.length; index += 2) {
            raw.put(pairs[index], pairs[index + 1]);
        }
        LogReads client = LogReads.of(Bootstrap.parse(node.servers()), 20_000, 0);
        return new Tables(client, SourceOptions.of(raw), conf, () -> 0);
    }

    private static Map<TopicPartition, ?> shown(Tables tables) {
        return tables.shown(List.of(new OffsetRange(AT, 0, 3)), Map.of("t", ID));
    }

    @Test
    void withoutTheClassesOfAStoreTheNodesServeItsRecords() {
        Tables tables = tables();
        assertEquals(Map.of(), shown(tables));
        assertEquals(Map.of(), shown(tables), "the second batch");
        conf.set("fs.s3a.impl", Unlinked.class.getName());
        assertEquals(Map.of(), shown(tables()));
    }

    @Test
    void whoAsksForTablesIsToldThatTheClassesAreMissing() {
        Tables tables = tables("tier", "remote");
        String told = assertThrows(IllegalArgumentException.class, () -> tables.newest(AT, ID, 0)).getMessage();
        assertTrue(told.contains("the table of topic 't' at s3://bucket/raftlake/t-" + ID + " cannot be read here: "), told);
        assertTrue(told.contains("org.example.NoSuchFileSystem not found"), told);
    }

    @Test
    void aQueryThatIsStoppedEnds() {
        conf.set("fs.s3a.impl", Stopped.class.getName());
        Tables tables = tables();
        assertThrows(IllegalStateException.class, () -> shown(tables));
        assertTrue(Thread.interrupted());
        conf.setBoolean("test.keeps.flag", false);
        assertThrows(IllegalStateException.class, () -> shown(tables()), "of an error that says so alone");
    }
}
