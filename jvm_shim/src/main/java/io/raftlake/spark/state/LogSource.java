package io.raftlake.spark.state;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.log.Logs;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;

/** Opens the logs of the quorum that a file system belongs to. */
@FunctionalInterface
public interface LogSource {
    Logs open(RaftlakeFileSystem fileSystem, Configuration conf) throws IOException;
}
