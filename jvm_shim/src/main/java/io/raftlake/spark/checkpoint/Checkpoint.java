package io.raftlake.spark.checkpoint;

import io.raftlake.spark.fs.Fence;
import io.raftlake.spark.fs.QuorumFiles;
import java.io.IOException;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * The checkpoint that a path lies in, for what is kept of it beside its files. {@code fence} is that of the run that the
 * configuration or the calling thread names; where they name none, it lets everything pass.
 */
public record Checkpoint(Path root, String query, Fence fence) {
    /** Nothing where the path is in no checkpoint. */
    public static Optional<Checkpoint> around(QuorumFiles files, Path path, Configuration conf) throws IOException {
        Optional<CheckpointRoot> root = CheckpointRoot.of(files, path);
        if (root.isEmpty()) {
            return Optional.empty();
        }
        Optional<Run> run = Run.current(conf);
        Fence fence = run.isEmpty() ? Fence.NONE : Ownership.of(files.space(), root.get(), run.get());
        return Optional.of(new Checkpoint(root.get().path(), root.get().query(), fence));
    }

    /** The id of the query whose checkpoint has this directory; nothing where it is no checkpoint. */
    public static Optional<String> queryAt(QuorumFiles files, Path root) throws IOException {
        return Optional.ofNullable(CheckpointRoot.queryOf(files, new Path(root, CheckpointRoot.FILE)));
    }
}
