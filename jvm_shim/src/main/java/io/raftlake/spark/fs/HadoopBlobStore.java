package io.raftlake.spark.fs;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Blobs as files {@code <base>/<pipeline>/<id>} of any Hadoop file system but our own; {@code base} is {@value #SETTING}. */
public final class HadoopBlobStore implements BlobStore {
    public static final String SETTING = "raftlake.fs.base.uri";

    private final Path base;
    private final Configuration conf;

    /** IOException, naming the setting, where the base is no place of another file system. */
    public HadoopBlobStore(String baseUri, Configuration conf) throws IOException {
        try {
            this.base = new Path(baseUri);
            this.conf = conf;
            String scheme = base.toUri().getScheme();
            // Asked before the file system is: ours would make this store, and wait for itself.
            if ("raftlake".equals(scheme == null ? FileSystem.getDefaultUri(conf).getScheme() : scheme)) {
                throw new IOException("it must lie in another file system than raftlake://");
            }
            base.getFileSystem(conf);
        } catch (IOException | IllegalArgumentException error) {
            throw new IOException(SETTING + "=" + baseUri + ": " + error.getMessage(), error);
        }
    }

    @Override
    public String uriOf(String pipeline, String id) {
        return new Path(new Path(base, pipeline), id).toString();
    }

    @Override
    public Output create(String uri, Announcement announcement) throws IOException {
        Path path = new Path(uri);
        OutputStream stream = path.getFileSystem(conf).create(path, false);
        return new Output() {
            @Override
            public void write(int b) throws IOException {
                stream.write(b);
            }

            @Override
            public void write(byte[] bytes, int from, int count) throws IOException {
                stream.write(bytes, from, count);
            }

            @Override
            public void close() throws IOException {
                stream.close();
            }

            @Override
            String uri() {
                return uri;
            }

            @Override
            boolean abort() {
                try {
                    stream.close();
                } catch (IOException ignored) {
                    // It is going to be removed.
                }
                return true;
            }
        };
    }

    @Override
    public FSDataInputStream open(String uri) throws IOException {
        Path path = new Path(uri);
        return path.getFileSystem(conf).open(path);
    }

    @Override
    public boolean delete(String uri) throws IOException {
        Path path = new Path(uri);
        if (!base.equals(path.getParent() == null ? null : path.getParent().getParent())) {
            return false;
        }
        path.getFileSystem(conf).delete(path, false);
        return true;
    }
}
