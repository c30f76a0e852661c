package io.raftlake.spark.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Numbered;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * The last record of each batch in a changelog: it says of which version the changes before it are. It has no key, which no
 * change is without, and JSON as its value:
 *
 * <pre>
 * {"format": 1, "version": 7, "id": "…", "parent": "…", "changes": 12, "last": true,
 *  "pieces": [[100, 180]], "lineage": [[6, "…", 60, 72]]}
 * </pre>
 *
 * <p>{@code changes} counts the records of the batch before this one. A version that needs several batches has
 * {@code "last": true} in the last of them only; there {@code pieces} lists the batches before it, as the offsets of the first
 * record and of the trailer. {@code id} is missing in Spark's checkpoint format 1. {@code lineage} lists the versions from the
 * newest snapshot on, oldest first, with their places in the log; -1 stands for a place that the writer did not know, or that
 * is in pieces. {@code parent} is the id of the last of them.
 */
record Trailer(long version, String id, int changes, boolean isLast, List<Piece> earlier, List<Ancestor> lineage) {
    static final int FORMAT = 1;

    private static final ObjectMapper MAPPER = new ObjectMapper();

    /** One batch: the offsets of its first record and of its trailer. Without changes both are the same. */
    record Piece(long first, long trailer) {}

    /** A version that this one is built on. */
    record Ancestor(long version, String id, long first, long trailer) {}

    LogRecord encode() throws IOException {
        ObjectNode json = MAPPER.createObjectNode().put("format", FORMAT).put("version", version);
        if (id != null) {
            json.put("id", id);
        }
        if (!lineage.isEmpty()) {
            json.put("parent", lineage.get(lineage.size() - 1).id());
        }
        json.put("changes", changes).put("last", isLast);
        ArrayNode pieces = json.putArray("pieces");
        earlier.forEach(piece -> pieces.addArray().add(piece.first()).add(piece.trailer()));
        ArrayNode ancestors = json.putArray("lineage");
        lineage.forEach(one -> ancestors.addArray().add(one.version()).add(one.id()).add(one.first()).add(one.trailer()));
        return LogRecord.of(null, MAPPER.writeValueAsBytes(json));
    }

    /** Null for a change. An IOException for a trailer of another format. */
    static Trailer decode(Numbered found) throws IOException {
        if (found.record().key() != null) {
            return null;
        }
        JsonNode json = MAPPER.readTree(found.record().value());
        if (json.path("format").asInt() != FORMAT) {
            throw new IOException("the record at offset " + found.offset() + " of a changelog has format "
                    + json.path("format").asText("?") + ", and this release reads format " + FORMAT);
        }
        List<Piece> earlier = new ArrayList<>();
        json.path("pieces").forEach(one -> earlier.add(new Piece(one.get(0).asLong(), one.get(1).asLong())));
        List<Ancestor> lineage = new ArrayList<>();
        json.path("lineage").forEach(one -> lineage.add(new Ancestor(
                one.get(0).asLong(), one.get(1).asText(), one.get(2).asLong(), one.get(3).asLong())));
        return new Trailer(json.path("version").asLong(), json.hasNonNull("id") ? json.get("id").asText() : null,
                json.path("changes").asInt(), json.path("last").asBoolean(), List.copyOf(earlier), List.copyOf(lineage));
    }

    /** The batch that it ends, where it stands at this offset. */
    Piece pieceAt(long offset) {
        return new Piece(offset - changes, offset);
    }

    /** All batches of its version, where this is the last one and stands at this offset. */
    List<Piece> piecesAt(long offset) {
        List<Piece> all = new ArrayList<>(earlier);
        all.add(pieceAt(offset));
        return List.copyOf(all);
    }
}
