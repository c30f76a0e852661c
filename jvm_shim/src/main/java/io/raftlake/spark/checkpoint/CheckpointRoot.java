package io.raftlake.spark.checkpoint;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.raftlake.spark.fs.QuorumFiles;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.Optional;
import org.apache.hadoop.fs.Path;

/**
 * The directory of a checkpoint, and the query that it is of. It is the one with Spark's file {@code metadata}, whose JSON has
 * the query's {@code id}. Metadata of operators is below such a directory, has the same name, and no id.
 */
record CheckpointRoot(Path path, String query) {
    static final String FILE = "metadata";

    /** What {@code raftlake checkpoints} puts in the place of the id while it changes a checkpoint begins so. */
    private static final String MARKED = "broken off: ";

    private static final ObjectMapper MAPPER = new ObjectMapper();

    /** The checkpoint that {@code path} is, or lies in. Nothing where it is in none, as the output of a file sink. */
    static Optional<CheckpointRoot> of(QuorumFiles files, Path path) throws IOException {
        for (Path directory = path; directory != null; directory = directory.getParent()) {
            String query = queryOf(files, new Path(directory, FILE));
            if (query != null) {
                return Optional.of(new CheckpointRoot(directory, query));
            }
        }
        return Optional.empty();
    }

    /** Whether a command is changing it, or was broken off. */
    boolean isBeingChanged() {
        return query.startsWith(MARKED);
    }

    /** The query id in a file of metadata; null where there is none. */
    static String queryOf(QuorumFiles files, Path metadata) throws IOException {
        byte[] content;
        try (InputStream in = files.open(metadata)) {
            content = in.readAllBytes();
        } catch (FileNotFoundException none) {
            return null;
        }
        try {
            JsonNode facts = MAPPER.readTree(content);
            return facts.path("id").isTextual() ? facts.path("id").textValue() : null;
        } catch (IOException noJson) {
            return null;
        }
    }
}
