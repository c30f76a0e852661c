package io.raftlake.spark.checkpoint;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import org.apache.hadoop.fs.PathIOException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.junit.jupiter.api.Test;

/** A run that begins while `raftlake checkpoints` changes its checkpoint: Spark has read {@code metadata} before. */
class ChangedCheckpointTest extends CheckpointCase {
    private final Run run = driver("late");

    private void metadata(String id) throws IOException {
        try (CancellableFSDataOutputStream out = files(null, ".").createAtomic(at("metadata"), true)) {
            out.write(("{\"id\":\"" + id + "\"}").getBytes(StandardCharsets.UTF_8));
        }
    }

    private void put(CheckpointFiles files, String path) throws IOException {
        try (CancellableFSDataOutputStream out = files.createAtomic(at(path), false)) {
            out.write(bytes(10));
        }
    }

    @Test
    void aRunThatMeetsTheMarkOfACommandReadsAndWritesNothing() throws IOException {
        create("offsets", "commits");
        put(files(null, "offsets"), "offsets/0");
        metadata("broken off: rewind, repeat it");
        for (String log : new String[] {"offsets", "commits", "sources/0"}) {
            CheckpointFiles files = files(run, log);
            for (int repetition = 0; repetition < 2; repetition++) {
                PathIOException met = assertThrows(PathIOException.class, () -> files.list(at(log)));
                assertTrue(met.getMessage().contains("broken off: rewind") && met.getMessage().contains(root.toString()), met.toString());
            }
            assertThrows(PathIOException.class, () -> put(files, log + "/1"));
        }
        assertEquals(Optional.empty(), Spaces.SPACE.get(Ownership.key(root)), "nothing is taken");
        metadata(QUERY);
        assertEquals(1, files(run, "offsets").list(at("offsets")).length, "behind the command the run goes on");
        assertTrue(Spaces.SPACE.get(Ownership.key(root)).isPresent());
    }

    @Test
    void whatLiesInNoCheckpointOfTheQueryIsNotFenced() throws IOException {
        files(run, "_spark_metadata").mkdirs(at("_spark_metadata"));
        put(files(run, "_spark_metadata"), "_spark_metadata/0");
        metadata("another-query");
        put(files(run, "offsets"), "offsets/7");
        assertEquals(Optional.empty(), Spaces.SPACE.get(Ownership.key(root)));
    }
}
