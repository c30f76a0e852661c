package io.raftlake.spark.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.raftlake.spark.state.Trailer.Piece;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/**
 * A small file that says where a version lies in the log, for checkpoint format 1: {@code {"format": 1, "pieces": [[10, 40]]}},
 * with the offsets of the first record and of the trailer of each batch. The file manager fences its creation.
 */
final class Pointer {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Pointer() {}

    static void write(CheckpointFileManager files, Path file, List<Piece> place) throws IOException {
        ObjectNode json = MAPPER.createObjectNode().put("format", Trailer.FORMAT);
        ArrayNode pieces = json.putArray("pieces");
        place.forEach(piece -> pieces.addArray().add(piece.first()).add(piece.trailer()));
        CancellableFSDataOutputStream out = files.createAtomic(file, true);
        try {
            out.write(MAPPER.writeValueAsBytes(json));
            out.close();
        } catch (IOException | RuntimeException error) {
            out.cancel();
            throw error;
        }
    }

    /** Nothing where there is no file, or one with changes in Spark's own form. */
    static Optional<List<Piece>> read(CheckpointFileManager files, Path file) throws IOException {
        JsonNode json;
        try (InputStream in = files.open(file)) {
            json = MAPPER.readTree(in.readAllBytes());
        } catch (FileNotFoundException | com.fasterxml.jackson.core.JsonProcessingException none) {
            return Optional.empty();
        }
        if (!json.path("pieces").isArray()) {
            return Optional.empty();
        }
        List<Piece> place = new ArrayList<>();
        json.get("pieces").forEach(one -> place.add(new Piece(one.get(0).asLong(), one.get(1).asLong())));
        return Optional.of(place);
    }
}
