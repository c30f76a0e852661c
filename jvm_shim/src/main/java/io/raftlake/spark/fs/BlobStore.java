package io.raftlake.spark.fs;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.FSDataInputStream;

/**
 * Where the content of large files is kept. A blob is written once, under a name that nothing else has, and never changed.
 *
 * <p>Guarantees: once the stream of {@link #create} is closed, {@link #open} finds the bytes, from any process.
 * {@link #delete} of what is not there is no error.
 */
public interface BlobStore {
    /** The name of the blob with this id. */
    String uriOf(String pipeline, String id);

    OutputStream create(String uri) throws IOException;

    /** FileNotFoundException where there is no such blob. */
    FSDataInputStream open(String uri) throws IOException;

    /** False for a blob that is not of this store, which is left alone. */
    boolean delete(String uri) throws IOException;
}
