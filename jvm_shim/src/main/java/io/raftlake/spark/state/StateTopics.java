package io.raftlake.spark.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.raftlake.spark.checkpoint.Checkpoint;
import io.raftlake.spark.fs.Location;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.Logs.Topic;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;

/**
 * Where the state of a checkpoint is: the key {@code /fs-state/<pipeline>/<path of the checkpoint>}, whose value is JSON with
 * {@code id} and the id of the {@code query}, and topics {@code __raftlake-state-<id>-<operator>-<name of the store>}. The
 * number of a partition is Spark's.
 *
 * <p>The key comes first, then the topics: a topic whose id no key names is garbage ({@link StateCollector}). The key of a
 * query that was there before, under the same path, is replaced.
 */
final class StateTopics {
    /** What the keys begin with. */
    static final String ROOT = Location.STATE_ROOT;

    /** What the names of the topics begin with. */
    static final String PREFIX = "__raftlake-state-";

    /** Letters and digits of an id. */
    static final int ID_LENGTH = 32;

    private static final int LOOKS_MAX = 1000;
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Map<String, String> CONFIGS = Map.of(
            "cleanup.policy", "delete",
            "retention.ms", "-1",
            "retention.bytes", "-1",
            "max.message.bytes", Integer.toString(Changelog.BATCH_BYTES_MAX));

    private final KeySpace space;
    private final Logs logs;
    private final Checkpoint checkpoint;

    StateTopics(KeySpace space, Logs logs, Checkpoint checkpoint) {
        this.space = space;
        this.logs = logs;
        this.checkpoint = checkpoint;
    }

    /** The value of a key. Members that are missing are empty. */
    record Owner(String id, String query) {
        static Owner decode(byte[] value) {
            JsonNode json;
            try {
                json = MAPPER.readTree(value);
            } catch (IOException noJson) {
                json = MAPPER.createObjectNode();
            }
            return new Owner(json.path("id").asText(), json.path("query").asText());
        }

        byte[] encode() throws IOException {
            return MAPPER.writeValueAsBytes(MAPPER.createObjectNode().put("id", id).put("query", query));
        }
    }

    static String key(Path root) throws IOException {
        return Location.of(root.toUri().getAuthority(), root.toUri().getPath()).stateKey();
    }

    /** A name that Kafka allows. Names that differ stay different. */
    static String topic(String id, StateStoreId store) {
        StringBuilder name = new StringBuilder(PREFIX).append(id).append('-').append(store.operatorId()).append('-');
        for (char c : store.storeName().toCharArray()) {
            boolean isPlain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_';
            name.append(isPlain ? String.valueOf(c) : String.format(".%04x", (int) c));
        }
        return name.toString();
    }

    /** The partition of a store, where there is one already. */
    Optional<Partition> find(StateStoreId store) throws IOException {
        Optional<Owner> found = space.get(key(checkpoint.root())).map(entry -> Owner.decode(entry.value()));
        if (found.isEmpty() || !found.get().query().equals(checkpoint.query())) {
            return Optional.empty();
        }
        String name = topic(found.get().id(), store);
        Optional<Topic> topic = logs.topic(name);
        return topic.filter(one -> one.partitions() > store.partitionId()).map(one -> new Partition(name, store.partitionId()));
    }

    /** The partition of a store; it is made where there is none, in a topic with at least {@code partitions}. */
    Partition ensure(StateStoreId store, int partitions) throws IOException {
        String name = topic(id(), store);
        int needed = Math.max(partitions, store.partitionId() + 1);
        if (logs.ensureTopic(name, needed, CONFIGS).partitions() < needed) {
            logs.addPartitions(name, needed);
        }
        return new Partition(name, store.partitionId());
    }

    private String id() throws IOException {
        String key = key(checkpoint.root());
        for (int look = 0; look < LOOKS_MAX; look++) {
            Optional<Entry> found = space.get(key);
            Optional<Owner> before = found.map(entry -> Owner.decode(entry.value()));
            if (before.isPresent() && before.get().query().equals(checkpoint.query())) {
                return before.get().id();
            }
            Owner mine = new Owner(UUID.randomUUID().toString().replace("-", ""), checkpoint.query());
            Txn txn = new Txn().compare(key, found.map(Entry::version).orElse(KeySpace.ABSENT)).put(key, mine.encode());
            checkpoint.fence().addTo(txn);
            TxnResult result = space.commit(txn, Witness.put(key, mine.encode()));
            if (result.succeeded()) {
                return mine.id();
            }
            checkpoint.fence().explain(result);
        }
        throw new QuorumUnavailableException(
                checkpoint.root() + ": other writers changed key " + key + " " + LOOKS_MAX + " times while this one tried to");
    }
}
