package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static io.raftlake.spark.kit.Files.write;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.quorum.Txn;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Directories around and above what one transaction can hold. */
@Tag("memory")
class LimitsTest {
    private final String pipeline = Spaces.newPipeline();
    private final Configuration conf = Spaces.conf();
    private FileSystem files;

    @BeforeEach
    void open() throws IOException {
        files = Spaces.fileSystem(conf, pipeline);
    }

    private Path at(String path) {
        return new Path("raftlake://" + pipeline + "/" + path);
    }

    /** Straight into the key-value space. */
    private void fill(String directory, int count) throws IOException {
        files.mkdirs(at(directory));
        for (int from = 0; from < count; from += 1000) {
            Txn txn = new Txn();
            for (int i = from; i < Math.min(count, from + 1000); i++) {
                txn.put("/fs/" + pipeline + "/" + directory + "/" + i, Node.inline(1, bytes(1)).encode());
            }
            Spaces.SPACE.commit(txn, at -> true);
        }
    }

    @Test
    void renamesUpToTheLimitAndNamesItBeyond() throws IOException {
        fill("d", Moves.DESCENDANTS_MAX);
        assertTrue(files.rename(at("d"), at("e")));
        assertEquals(Moves.DESCENDANTS_MAX, files.listStatus(at("e")).length);
        write(files, at("e/one-more"), bytes(1), false);
        String told = assertThrows(IOException.class, () -> files.rename(at("e"), at("f"))).getMessage();
        assertTrue(told.contains("500"), told);
        assertFalse(files.exists(at("f")));
        assertEquals(Moves.DESCENDANTS_MAX + 1, files.listStatus(at("e")).length);
    }

    @Test
    void aRenameOfTooManyBytesIsRefused() throws IOException {
        for (int i = 0; i < 9; i++) {
            write(files, at("d/" + i), bytes(1_000_000), false);
        }
        assertThrows(IOException.class, () -> files.rename(at("d"), at("e")));
        assertEquals(9, files.listStatus(at("d")).length);
    }

    @Test
    void aRenameThatMakesAKeyTooLongChangesNothing() throws IOException {
        write(files, at("d/" + "x".repeat(900)), bytes(1), false);
        assertThrows(IOException.class, () -> files.rename(at("d"), at("y".repeat(200))));
        assertEquals(1, files.listStatus(at("d")).length);
    }

    @Test
    void directoriesOfAnySizeAreDeleted() throws IOException {
        fill("d", 25_000);
        fill("d/e", 12_000);
        fill("keep", 1);
        assertTrue(files.delete(at("d"), true));
        assertFalse(files.exists(at("d")));
        assertFalse(files.exists(at("d/e/5")));
        assertEquals(1, files.listStatus(new Path("raftlake://" + pipeline + "/")).length);
    }

    @Test
    void listsGoOnFromPageToPage() throws IOException {
        fill("d", 10_500);
        fill("d/sub", 3);
        assertEquals(10_501, files.listStatus(at("d")).length);
    }
}
