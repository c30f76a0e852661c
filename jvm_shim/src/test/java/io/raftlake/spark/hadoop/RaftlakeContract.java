package io.raftlake.spark.hadoop;

import io.raftlake.spark.kit.Spaces;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Our file system as Hadoop's contract tests see it; {@code contract/raftlake.xml} says what it promises. */
final class RaftlakeContract extends AbstractFSContract {
    private static final String PIPELINE = Spaces.newPipeline();

    RaftlakeContract(Configuration conf) {
        super(conf);
        addConfResource("contract/raftlake.xml");
    }

    static Configuration conf() {
        return Spaces.conf();
    }

    /** Every file that is not empty is a blob in the quorum. */
    static Configuration confOfBlobs() {
        Configuration conf = Spaces.confWithLogs();
        conf.setInt("raftlake.fs.inline.bytes", 0);
        return conf;
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        return Spaces.fileSystem(getConf(), PIPELINE);
    }

    @Override
    public String getScheme() {
        return "raftlake";
    }

    @Override
    public Path getTestPath() {
        return new Path("raftlake://" + PIPELINE + "/test");
    }
}
