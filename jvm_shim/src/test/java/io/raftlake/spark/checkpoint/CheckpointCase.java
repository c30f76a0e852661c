package io.raftlake.spark.checkpoint;

import io.raftlake.spark.kit.Spaces;
import java.io.IOException;
import java.util.Optional;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/** A checkpoint of one query, for tests of what its runs may do there. Each test has one of its own. */
abstract class CheckpointCase {
    static final String QUERY = "8d0e3b1c-query";

    final String pipeline = Spaces.newPipeline();
    final Path root = new Path("raftlake://" + pipeline + "/q");
    private final Configuration conf = Spaces.conf();

    static Run driver(String name) {
        return new Run(name + "-" + UUID.randomUUID(), QUERY);
    }

    final Path at(String path) {
        return new Path(root, path);
    }

    final CheckpointFiles files(Run of, String path) throws IOException {
        return new CheckpointFiles(at(path), conf, absent -> Optional.ofNullable(of));
    }

    final CheckpointFiles started(Run of, String log) throws IOException {
        CheckpointFiles files = files(of, log);
        files.list(at(log));
        return files;
    }

    /** What Spark makes before the first run. */
    final void create(String... logs) throws IOException {
        try (CancellableFSDataOutputStream out = files(null, ".").createAtomic(at("metadata"), false)) {
            out.write(("{\"id\":\"" + QUERY + "\"}").getBytes());
        }
        for (String log : logs) {
            files(null, log).mkdirs(at(log));
        }
    }
}
