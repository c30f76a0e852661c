package io.raftlake.spark.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractRenameTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Hadoop's own contract. */
public class HadoopRenameTest extends AbstractContractRenameTest {
    @Override
    protected Configuration createConfiguration() {
        return RaftlakeContract.conf();
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new RaftlakeContract(conf);
    }
}
