package io.raftlake.spark;

import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Settings that change while Hadoop keeps a file system. */
@Tag("memory")
class RaftlakeFileSystemTest {
    private static Configuration at(String servers) {
        Configuration conf = new Configuration(false);
        conf.set("fs.raftlake.impl", RaftlakeFileSystem.class.getName());
        if (servers != null) {
            conf.set("raftlake.http.servers", servers);
        }
        return conf;
    }

    @Test
    void aSecondQuorumUnderThePipelineOfAnotherIsRefused() throws IOException {
        Path path = new Path("raftlake://" + Spaces.newPipeline() + "/q");
        RaftlakeFileSystem first = RaftlakeFileSystem.of(path, at("127.0.0.1:1,127.0.0.1:2"));
        // A node that is gone, and one that came, leave the quorum the same.
        assertSame(first, RaftlakeFileSystem.of(path, at("127.0.0.1:2,127.0.0.1:3")));
        assertSame(first, RaftlakeFileSystem.of(path, at(null)));
        String told = assertThrows(PathIOException.class, () -> RaftlakeFileSystem.of(path, at("127.0.0.1:3"))).getMessage();
        assertTrue(told.contains("http://127.0.0.1:1,http://127.0.0.1:2") && told.contains("names http://127.0.0.1:3"), told);
        RaftlakeFileSystem.of(new Path("raftlake://" + Spaces.newPipeline() + "/q"), at("127.0.0.1:3"));
    }
}
