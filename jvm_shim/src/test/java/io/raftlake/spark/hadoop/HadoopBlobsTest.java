package io.raftlake.spark.hadoop;

import org.apache.hadoop.conf.Configuration;

/** Hadoop's own contract, where all content is kept as blobs in the quorum. */
final class HadoopBlobsTest {
    private HadoopBlobsTest() {}

    static class CreateTest extends HadoopCreateTest {
        @Override
        protected Configuration createConfiguration() {
            return RaftlakeContract.confOfBlobs();
        }
    }

    static class OpenTest extends HadoopOpenTest {
        @Override
        protected Configuration createConfiguration() {
            return RaftlakeContract.confOfBlobs();
        }
    }

    static class SeekTest extends HadoopSeekTest {
        @Override
        protected Configuration createConfiguration() {
            return RaftlakeContract.confOfBlobs();
        }
    }

    static class RenameTest extends HadoopRenameTest {
        @Override
        protected Configuration createConfiguration() {
            return RaftlakeContract.confOfBlobs();
        }
    }

    static class DeleteTest extends HadoopDeleteTest {
        @Override
        protected Configuration createConfiguration() {
            return RaftlakeContract.confOfBlobs();
        }
    }

    static class ContentSummaryTest extends HadoopContentSummaryTest {
        @Override
        protected Configuration createConfiguration() {
            return RaftlakeContract.confOfBlobs();
        }
    }

    static class GetFileStatusTest extends HadoopGetFileStatusTest {
        @Override
        protected Configuration createConfiguration() {
            return RaftlakeContract.confOfBlobs();
        }
    }
}
