package io.raftlake.spark.quorum;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The JSON bodies of {@code /v1}. A body that is not what it should be is a {@link RefusedException} of the reader. */
final class Json {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final int TEXT_MAX = 500;

    private Json() {}

    static byte[] ofTxn(Txn txn) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
        try (JsonGenerator json = MAPPER.createGenerator(bytes)) {
            json.writeStartObject();
            json.writeArrayFieldStart("compare");
            for (Txn.Compare compare : txn.compares()) {
                writeCompare(json, compare);
            }
            json.writeEndArray();
            json.writeArrayFieldStart("ops");
            for (Txn.Op op : txn.ops()) {
                writeOp(json, op);
            }
            json.writeEndArray();
            json.writeEndObject();
        }
        return bytes.toByteArray();
    }

    private static void writeCompare(JsonGenerator json, Txn.Compare compare) throws IOException {
        json.writeStartObject();
        if (compare instanceof Txn.Compare.Key key) {
            json.writeStringField("key", key.key());
            json.writeNumberField("version", key.version());
        } else if (compare instanceof Txn.Compare.Prefix prefix) {
            json.writeStringField("prefix", prefix.prefix());
            json.writeNumberField("newest", prefix.newest());
        }
        json.writeEndObject();
    }

    private static void writeOp(JsonGenerator json, Txn.Op op) throws IOException {
        json.writeStartObject();
        if (op instanceof Txn.Op.Put put) {
            json.writeObjectFieldStart("put");
            json.writeStringField("key", put.key());
            json.writeBinaryField("value", put.value());
        } else if (op instanceof Txn.Op.Delete delete) {
            json.writeObjectFieldStart("delete");
            json.writeStringField("key", delete.key());
        } else if (op instanceof Txn.Op.DeletePrefix range) {
            json.writeObjectFieldStart("delete");
            json.writeStringField("prefix", range.prefix());
        } else if (op instanceof Txn.Op.EndTxn end) {
            json.writeObjectFieldStart("end_txn");
            json.writeNumberField("producer_id", end.producerId());
            json.writeNumberField("epoch", end.epoch());
            json.writeBooleanField("commit", end.commit());
        }
        json.writeEndObject();
        json.writeEndObject();
    }

    static Page page(byte[] body, long version) throws IOException {
        JsonNode root = object(body);
        if (!root.path("entries").isArray() || !root.path("more").isBoolean()) {
            throw new RefusedException("no list of keys: " + text(body));
        }
        List<Entry> entries = new ArrayList<>();
        for (JsonNode row : root.path("entries")) {
            JsonNode value = row.get("value");
            entries.add(new Entry(row.path("key").textValue(), row.path("version").longValue(),
                    value == null ? null : value.binaryValue()));
        }
        List<String> prefixes = new ArrayList<>();
        for (JsonNode row : root.path("prefixes")) {
            prefixes.add(row.textValue());
        }
        return new Page(entries, prefixes, root.path("more").booleanValue(), version);
    }

    /** What a 412 says is in the way: keys, prefixes, producers. Null where the body is no node's. */
    static TxnResult inTheWay(byte[] body) {
        try {
            JsonNode root = object(body);
            List<String> names = new ArrayList<>();
            for (JsonNode row : root.path("failed")) {
                names.add(row.hasNonNull("prefix") ? row.path("prefix").asText() : row.path("key").asText());
            }
            Map<Long, String> producers = new LinkedHashMap<>();
            for (JsonNode row : root.path("refused")) {
                producers.put(row.path("producer_id").asLong(), row.path("reason").asText());
            }
            return names.isEmpty() && producers.isEmpty() ? null : TxnResult.refused(names, producers);
        } catch (IOException noNode) {
            return null;
        }
    }

    /** The version of a transaction that happened; 0 where the body does not say that one did. */
    static long version(byte[] body) {
        try {
            JsonNode root = object(body);
            return root.path("succeeded").booleanValue() ? root.path("version").longValue() : 0;
        } catch (IOException noNode) {
            return 0;
        }
    }

    static boolean hasErrorText(byte[] body) {
        try {
            return object(body).path("error").isTextual();
        } catch (IOException noJson) {
            return false;
        }
    }

    static String errorText(byte[] body) {
        try {
            JsonNode error = object(body).path("error");
            return error.isTextual() ? error.textValue() : text(body);
        } catch (IOException noJson) {
            return text(body);
        }
    }

    private static JsonNode object(byte[] body) throws IOException {
        JsonNode root = MAPPER.readTree(body);
        if (root == null || !root.isObject()) {
            throw new RefusedException("no JSON object: " + text(body));
        }
        return root;
    }

    private static String text(byte[] body) {
        String text = new String(body, StandardCharsets.UTF_8);
        return text.length() <= TEXT_MAX ? text : text.substring(0, TEXT_MAX) + "...";
    }
}
