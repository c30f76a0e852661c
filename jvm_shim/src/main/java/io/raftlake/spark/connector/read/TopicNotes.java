package io.raftlake.spark.connector.read;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;

/**
 * Which topic a streaming query has read under a name, over its restarts: the key {@code /sources/<query id>/<topic>} has the
 * JSON {@code {"topic_id": "<32 hexadecimal digits>"}}, as the connector in Python writes it. A topic that was deleted and
 * created again while the query was down has another id, and the offsets of the checkpoint mean other records.
 */
final class TopicNotes {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private final KeySpace keys;
    private final String query;
    private final boolean failOnDataLoss;

    /** By topic the id, in base64, that this run has looked at. */
    private final Map<String, String> noted = new HashMap<>();

    TopicNotes(KeySpace keys, String query, boolean failOnDataLoss) {
        this.keys = keys;
        this.query = query;
        this.failOnDataLoss = failOnDataLoss;
    }

    /**
     * Looks, the first time for each id, and writes down what is not there yet. {@link DataLoss} where the query has read
     * another topic of this name, unless this run itself has found that the topic {@code wasRecreated}.
     */
    void note(String topic, String topicId, boolean wasRecreated) throws IOException {
        if (topicId.equals(noted.get(topic))) {
            return;
        }
        String id = HexFormat.of().formatHex(Base64.getUrlDecoder().decode(topicId));
        String key = "/sources/" + quoted(query) + "/" + quoted(topic);
        Optional<Entry> found = keys.get(key);
        String known = found.map(entry -> idIn(entry.value())).orElse(null);
        if (!id.equals(known)) {
            if (known != null && noted.get(topic) == null && !wasRecreated) {
                DataLoss.report("Topic " + topic + " was deleted and created again while the query was down: the offsets of "
                        + "its checkpoint are those of the topic " + known + ", and the topic is " + id + " now",
                        failOnDataLoss);
            }
            byte[] value = ("{\"topic_id\": \"" + id + "\"}").getBytes(StandardCharsets.UTF_8);
            long version = found.map(Entry::version).orElse(KeySpace.ABSENT);
            // Where somebody else was faster, that was a run of the same query, with the same id.
            keys.commit(new Txn().compare(key, version).put(key, value), Witness.put(key, value));
        }
        noted.put(topic, topicId);
    }

    /** As a part of a key. */
    static String quoted(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20").replace("*", "%2A");
    }

    /** Null where the value is none of ours. */
    private static String idIn(byte[] value) {
        try {
            JsonNode id = MAPPER.readTree(value).path("topic_id");
            return id.isTextual() && id.textValue().matches("[0-9a-f]{32}") ? id.textValue() : null;
        } catch (IOException noJson) {
            return null;
        }
    }
}
