package io.raftlake.spark;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.Objects;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.InvalidPathException;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/**
 * {@link RaftlakeFileSystem} for Hadoop's FileContext, through which Spark writes checkpoints. Set
 * {@code fs.AbstractFileSystem.raftlake.impl} to its name.
 *
 * <p>Beyond what the delegate does, a rename that overwrites is atomic: Hadoop's default deletes the target first. Paths are
 * told apart by the whole authority, for a pipeline's name need not be a host name.
 */
public class RaftlakeAbstractFileSystem extends DelegateToFileSystem {
    private static final URI NO_PIPELINE = URI.create(RaftlakeFileSystem.SCHEME + ":///");

    private final RaftlakeFileSystem files;

    /** Called by Hadoop, by reflection. */
    public RaftlakeAbstractFileSystem(URI uri, Configuration conf) throws IOException, URISyntaxException {
        this(uri, new RaftlakeFileSystem(), conf);
    }

    protected RaftlakeAbstractFileSystem(URI uri, RaftlakeFileSystem files, Configuration conf)
            throws IOException, URISyntaxException {
        // Hadoop's constructor takes the authority for a host name, which has no underscore: it gets none.
        super(NO_PIPELINE, files.assigned(uri), conf, RaftlakeFileSystem.SCHEME, false);
        this.files = files;
    }

    @Override
    public URI getUri() {
        // Asked by the constructor of the superclass too.
        return files == null ? NO_PIPELINE : files.getUri();
    }

    @Override
    public void renameInternal(Path source, Path target) throws IOException {
        files.rename(source, target, Options.Rename.NONE);
    }

    @Override
    public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
        files.rename(source, target, overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE);
    }

    @Override
    public void checkPath(Path path) {
        URI given = path.toUri();
        boolean isOurs = given.getScheme() == null
                || given.getScheme().equalsIgnoreCase(RaftlakeFileSystem.SCHEME)
                        && Objects.equals(given.getAuthority(), getUri().getAuthority());
        if (!isOurs) {
            throw new InvalidPathException(path + " is not of " + getUri());
        }
    }

    /** Colons too: names are checked where they become keys. */
    @Override
    public boolean isValidName(String name) {
        return true;
    }
}
