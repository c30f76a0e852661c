package io.raftlake.spark.kit;

import io.raftlake.spark.QuorumStateStoreProvider;
import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.log.Logs;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RangeKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A streaming query as state stores see one: a checkpoint, a run, and stores that are opened, committed and opened again. Keys
 * are a word and a number, values a number.
 */
public final class StateQuery {
    public static final StructType KEY =
            new StructType().add("word", DataTypes.StringType).add("number", DataTypes.IntegerType);
    public static final StructType VALUE = new StructType().add("value", DataTypes.IntegerType);
    public static final String DEFAULT = "default";

    /** Whose stores, and in which checkpoint format. */
    public enum Kind {
        QUORUM(2),
        QUORUM_FORMAT_1(1),
        OTHER_SCHEME(2),
        SPARK(2),
        SPARK_FORMAT_1(1);

        public final int format;

        Kind(int format) {
            this.format = format;
        }

        public boolean isQuorum() {
            return this == QUORUM || this == QUORUM_FORMAT_1;
        }
    }

    /** The product's class over the logs in memory. */
    public static class OfMemory extends QuorumStateStoreProvider {
        @Override
        protected Logs logs(RaftlakeFileSystem fileSystem, Configuration conf) {
            return Spaces.LOGS;
        }
    }

    public final Kind kind;
    public final Path root;
    public final Configuration conf;
    private final SQLConf settings = new SQLConf();
    private boolean useColumnFamilies;
    private KeyStateEncoderSpec encoder = prefixed();

    private StateQuery(Kind kind, Path root, String run) {
        this.kind = kind;
        this.root = root;
        this.conf = Spaces.conf();
        conf.set("sql.streaming.runId", run);
        conf.set("spark.sql.streaming.checkpointFileManagerClass", "io.raftlake.spark.QuorumCheckpointFileManager");
        set("spark.sql.streaming.stateStore.checkpointFormatVersion", Integer.toString(kind.format));
        set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true");
        set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1000");
        set("spark.sql.streaming.minBatchesToRetain", "2");
    }

    /** A query whose checkpoint was just made; {@code directory} is for kinds that are not in the quorum. */
    public static StateQuery start(Kind kind, java.nio.file.Path directory) throws IOException {
        String root = kind.isQuorum() ? "raftlake://" + Spaces.newPipeline() + "/main" : directory.toUri() + "/main";
        StateQuery query = new StateQuery(kind, new Path(root), UUID.randomUUID().toString());
        query.writeMetadata(UUID.randomUUID().toString());
        return query;
    }

    /** Makes the directory a checkpoint of this query. */
    public void writeMetadata(String id) throws IOException {
        byte[] metadata = ("{\"id\":\"" + id + "\"}").getBytes(StandardCharsets.UTF_8);
        Files.write(files(), new Path(root, "metadata"), metadata, true);
    }

    /** Another run of the query. */
    public StateQuery restart() {
        StateQuery next = new StateQuery(kind, root, UUID.randomUUID().toString());
        next.useColumnFamilies = useColumnFamilies;
        next.encoder = encoder;
        return next;
    }

    public String run() {
        return conf.get("sql.streaming.runId");
    }

    public FileSystem files() throws IOException {
        return root.getFileSystem(conf);
    }

    public StateStoreConf storeConf() {
        return new StateStoreConf(settings, scala.collection.immutable.Map$.MODULE$.<String, String>empty());
    }

    public StateQuery set(String name, String value) {
        settings.setConfString(name, value);
        return this;
    }

    public StateQuery withColumnFamilies() {
        useColumnFamilies = true;
        return this;
    }

    /** Keys are in the order of their numbers, so that ranges can be deleted. */
    public StateQuery ordered() {
        encoder = new RangeKeyScanStateEncoderSpec(KEY, CollectionConverters.asScala(List.<Object>of(1)).toSeq());
        return this;
    }

    public StateStoreId id(int partition, String store) {
        return new StateStoreId(root + "/state", 0, partition, store);
    }

    public Store open() {
        return open(0, DEFAULT);
    }

    /** A store of an executor that has nothing of it in its memory. */
    public Store open(int partition, String store) {
        boolean isSparks = kind == Kind.SPARK || kind == Kind.SPARK_FORMAT_1;
        RocksDBStateStoreProvider provider = isSparks ? new RocksDBStateStoreProvider() : new OfMemory();
        provider.init(id(partition, store), KEY, VALUE, encoder, useColumnFamilies, storeConf(), conf,
                false, Option.empty());
        return new Store(provider);
    }

    /** An attempt of a version: what the commit log keeps of it. */
    public record Version(long number, String id) {
        public static final Version NONE = new Version(0, null);

        public Option<String> uniqueId() {
            return Option.apply(id);
        }
    }

    /** One provider, and what it has open. */
    public static final class Store implements AutoCloseable {
        private final RocksDBStateStoreProvider provider;
        private ReadStateStore open;

        private Store(RocksDBStateStoreProvider provider) {
            this.provider = provider;
        }

        public RocksDBStateStoreProvider provider() {
            return provider;
        }

        public StateStore write(Version on) {
            StateStore store = provider.getStore(on.number(), on.uniqueId(), false, false);
            open = store;
            return store;
        }

        public Version commit(StateStore store) {
            long number = store.commit();
            open = null;
            Option<String> id = store.getStateStoreCheckpointInfo().stateStoreCkptId();
            return new Version(number, id.isEmpty() ? null : id.get());
        }

        /** Puts the words, each with its length as the number, and commits. */
        public Version put(Version on, int value, String... words) {
            StateStore store = write(on);
            for (String word : words) {
                store.put(key(word, word.length()), value(value), DEFAULT);
            }
            return commit(store);
        }

        public Version remove(Version on, String... words) {
            StateStore store = write(on);
            for (String word : words) {
                store.remove(key(word, word.length()), DEFAULT);
            }
            return commit(store);
        }

        /** All that a version holds, by word. */
        public Map<String, Integer> read(Version version) {
            ReadStateStore store = provider.getReadStore(version.number(), version.uniqueId());
            try {
                return all(store, DEFAULT);
            } finally {
                store.release();
            }
        }

        /** A store that a failed test left open would be waited for. */
        @Override
        public void close() {
            if (open != null) {
                try {
                    open.abort();
                } catch (RuntimeException ended) {
                    // By the test.
                }
            }
            provider.close();
        }
    }

    public static Map<String, Integer> all(ReadStateStore store, String family) {
        Map<String, Integer> found = new TreeMap<>();
        Iterator<UnsafeRowPair> rows = store.iterator(family);
        while (rows.hasNext()) {
            UnsafeRowPair row = rows.next();
            found.put(row.key().getUTF8String(0).toString(), row.value().getInt(0));
        }
        return found;
    }

    private static final UnsafeProjection KEYS = projection(KEY);
    private static final UnsafeProjection VALUES = projection(VALUE);
    private static final UnsafeProjection WORDS = projection(new StructType().add("word", DataTypes.StringType));

    private static UnsafeProjection projection(StructType schema) {
        return UnsafeProjection$.MODULE$.create(schema);
    }

    public static UnsafeRow key(String word, int number) {
        return row(KEYS, UTF8String.fromString(word), number);
    }

    public static UnsafeRow value(int value) {
        return row(VALUES, value);
    }

    /** The prefix of a key: the word alone. */
    public static UnsafeRow word(String word) {
        return row(WORDS, UTF8String.fromString(word));
    }

    private static UnsafeRow row(UnsafeProjection projection, Object... fields) {
        return projection.apply(new GenericInternalRow(fields)).copy();
    }

    public static KeyStateEncoderSpec prefixed() {
        return new PrefixKeyScanStateEncoderSpec(KEY, 1);
    }
}
