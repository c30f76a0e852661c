package io.raftlake.spark.kit;

import io.raftlake.spark.RaftlakeAbstractFileSystem;
import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.fs.FsSettings;
import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.Codec;
import io.raftlake.spark.log.LogSettings;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.quorum.HttpKeySpace;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Servers;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/**
 * What the suites run on: keys and logs in memory, or the quorum that the system properties {@code raftlake.test.servers} (HTTP)
 * and {@code raftlake.test.bootstrap} (Kafka) list. A test takes a pipeline of its own.
 */
public final class Spaces {
    public static final KeySpace SPACE = servers() == null
            ? new MemoryKeySpace()
            : new HttpKeySpace(Servers.parse(servers()), 30_000);

    public static final Logs LOGS = System.getProperty("raftlake.test.bootstrap") == null
            ? new MemoryLogs()
            : Logs.of(new LogSettings(Bootstrap.parse(System.getProperty("raftlake.test.bootstrap")), 30_000, Codec.LZ4));

    private static final String RUN = Long.toString(System.nanoTime(), 36);
    private static final AtomicInteger PIPELINES = new AtomicInteger();

    private Spaces() {}

    private static String servers() {
        return System.getProperty("raftlake.test.servers");
    }

    public static String newPipeline() {
        return "test-" + RUN + "-" + PIPELINES.incrementAndGet();
    }

    /** A name for a topic that no other test has. */
    public static String newTopic() {
        return newPipeline();
    }

    /** Settings under which {@code raftlake://} is the space of this run. */
    public static Configuration conf() {
        Configuration conf = new Configuration(false);
        conf.addResource("core-default.xml");
        boolean isMemory = servers() == null;
        conf.set(Servers.SETTING, isMemory ? "memory:1" : servers());
        conf.set("fs.raftlake.impl", (isMemory ? OfMemory.class : RaftlakeFileSystem.class).getName());
        conf.set("fs.AbstractFileSystem.raftlake.impl",
                (isMemory ? AbstractOfMemory.class : RaftlakeAbstractFileSystem.class).getName());
        return conf;
    }

    /** The same, with the quorum as the place of large files. */
    public static Configuration confWithLogs() {
        Configuration conf = conf();
        conf.set(Bootstrap.SETTING, System.getProperty("raftlake.test.bootstrap", "memory:1"));
        return conf;
    }

    public static FileSystem fileSystem(Configuration conf, String pipeline) throws IOException {
        return FileSystem.newInstance(URI.create("raftlake://" + pipeline + "/"), conf);
    }

    /** The product's class over the space in memory. */
    public static class OfMemory extends RaftlakeFileSystem {
        @Override
        protected KeySpace keySpace(FsSettings settings) {
            return SPACE;
        }

        @Override
        protected Logs logs(FsSettings settings) {
            return settings.logs() == null ? null : LOGS;
        }
    }

    /** The same for FileContext. */
    public static class AbstractOfMemory extends RaftlakeAbstractFileSystem {
        public AbstractOfMemory(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(uri, new OfMemory(), conf);
        }
    }
}
