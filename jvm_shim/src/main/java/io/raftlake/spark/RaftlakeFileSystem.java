package io.raftlake.spark;

import io.raftlake.spark.fs.FsSettings;
import io.raftlake.spark.fs.LocalCopy;
import io.raftlake.spark.fs.QuorumFiles;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.quorum.HttpKeySpace;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Servers;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * {@code raftlake://<pipeline>/<path>}: files in the key-value space of a raftlake quorum. Guarantees:
 *
 * <ol>
 *   <li>A file is seen when its stream is closed: whole, by everybody, at once.</li>
 *   <li>Of several that create one file without overwriting, one succeeds; the others get FileAlreadyExistsException.</li>
 *   <li>A rename of a file or a directory, and a deletion within limits, is one transaction of the quorum.</li>
 *   <li>What is read is what was written: checksums are verified.</li>
 * </ol>
 *
 * <p>Appending, changing times, truncating and symbolic links are not supported, and say so. Owner and permission are not kept.
 * This class speaks Hadoop's language; {@link QuorumFiles} does the work. Set {@code fs.raftlake.impl} to its name.
 */
public class RaftlakeFileSystem extends FileSystem {
    public static final String SCHEME = "raftlake";

    private URI assigned;
    private URI uri;
    private Path workingDirectory;
    private QuorumFiles files;
    private List<String> servers;

    /**
     * That of a path. Hadoop keeps one for each pipeline and user in a process, with the settings of the first who asked: an
     * IOException where {@code conf} names another quorum by now.
     */
    public static RaftlakeFileSystem of(Path path, Configuration conf) throws IOException {
        RaftlakeFileSystem found = (RaftlakeFileSystem) path.getFileSystem(conf);
        String setting = conf.get(Servers.SETTING);
        List<String> named = setting == null ? found.servers : Servers.parse(setting);
        if (Collections.disjoint(named, found.servers)) {
            throw new PathIOException(path.toString(), "this process asks " + String.join(",", found.servers) + " for its files, "
                    + "and " + Servers.SETTING + " names " + String.join(",", named) + " now. Hadoop keeps the first quorum of a "
                    + "pipeline: start the Spark application again, or keep the checkpoint under another pipeline's name");
        }
        return found;
    }

    @Override
    public void initialize(URI given, Configuration conf) throws IOException {
        Versions.requireSpark();
        URI name = assigned == null ? given : assigned;
        super.initialize(name, conf);
        setConf(conf);
        FsSettings settings = FsSettings.of(conf);
        servers = settings.servers();
        files = QuorumFiles.open(name.getAuthority(), settings, keySpace(settings), logs(settings), conf, statistics);
        uri = URI.create(SCHEME + "://" + name.getAuthority());
        workingDirectory = new Path(uri + "/");
    }

    /** Lets {@link #initialize} take this URI, whatever it is given. */
    RaftlakeFileSystem assigned(URI name) {
        assigned = name;
        return this;
    }

    /** The key-value space of these settings. */
    protected KeySpace keySpace(FsSettings settings) {
        return new HttpKeySpace(settings.servers(), settings.timeoutMs());
    }

    /** The logs of these settings; null where they name none. */
    protected Logs logs(FsSettings settings) {
        return settings.logs() == null ? null : Logs.of(settings.logs());
    }

    /** What does the work, for those who need more than Hadoop's words. Paths are whole there. */
    public QuorumFiles files() {
        return files;
    }

    @Override
    public String getScheme() {
        return SCHEME;
    }

    @Override
    public URI getUri() {
        return uri;
    }

    /** No tokens are needed, and no name is resolved to find that out. */
    @Override
    public String getCanonicalServiceName() {
        return null;
    }

    // --- reading -----------------------------------------------------------------------------------------------------

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        statistics.incrementReadOps(1);
        return new FSDataInputStream(files.open(whole(path)));
    }

    /**
     * A file comes chunk by chunk, with one request less than Hadoop makes: state is restored by this. The local file has no
     * checksum beside it, since bytes are checked before they are written. Directories, and moves, go Hadoop's way.
     */
    @Override
    public void copyToLocalFile(boolean deleteSource, Path source, Path target, boolean useRawLocalFileSystem) throws IOException {
        Optional<LocalCopy> copy = deleteSource ? Optional.empty() : LocalCopy.of(target);
        InputStream content = copy.isEmpty() ? null : contentOf(source);
        if (content == null) {
            super.copyToLocalFile(deleteSource, source, target, useRawLocalFileSystem);
            return;
        }
        statistics.incrementReadOps(1);
        try (content) {
            copy.get().take(content);
        }
    }

    /** As Hadoop, with any class that {@code fs.file.impl} names: Hadoop's own method takes LocalFileSystem's subclasses alone. */
    @Override
    public void copyFromLocalFile(boolean deleteSource, boolean overwrite, Path source, Path target) throws IOException {
        FileSystem local = FileSystem.get(URI.create("file:///"), getConf());
        FileUtil.copy(local, source, this, target, deleteSource, overwrite, getConf());
    }

    /** Null where no file is. */
    private InputStream contentOf(Path path) throws IOException {
        try {
            return files.open(whole(path));
        } catch (FileNotFoundException missing) {
            return null;
        }
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        statistics.incrementReadOps(1);
        return files.status(whole(path));
    }

    @Override
    public FileStatus[] listStatus(Path path) throws FileNotFoundException, IOException {
        statistics.incrementLargeReadOps(1);
        return files.list(whole(path));
    }

    /** The CRC32C of the content, comparable with HDFS's where {@code dfs.checksum.combine.mode} is COMPOSITE_CRC. */
    @Override
    public FileChecksum getFileChecksum(Path path) throws IOException {
        statistics.incrementReadOps(1);
        return files.checksum(whole(path));
    }

    // --- writing -----------------------------------------------------------------------------------------------------

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        return create(path, overwrite, true);
    }

    @Override
    public FSDataOutputStream createNonRecursive(Path path, FsPermission permission, EnumSet<CreateFlag> flags,
            int bufferSize, short replication, long blockSize, Progressable progress) throws IOException {
        requireNoAppend(path, flags);
        return create(path, flags.contains(CreateFlag.OVERWRITE), false);
    }

    /** FileContext's way to create: it has checked whether the directory above must exist. */
    @Override
    @SuppressWarnings("deprecation")
    protected FSDataOutputStream primitiveCreate(Path path, FsPermission permission, EnumSet<CreateFlag> flags,
            int bufferSize, short replication, long blockSize, Progressable progress, Options.ChecksumOpt checksum)
            throws IOException {
        requireNoAppend(path, flags);
        CreateFlag.validate(flags);
        if (!flags.contains(CreateFlag.CREATE)) {
            getFileStatus(path);
        }
        return create(path, flags.contains(CreateFlag.OVERWRITE), true);
    }

    private static void requireNoAppend(Path path, EnumSet<CreateFlag> flags) {
        if (flags.contains(CreateFlag.APPEND)) {
            throw noAppend(path);
        }
    }

    private FSDataOutputStream create(Path path, boolean overwrite, boolean makesDirectories) throws IOException {
        statistics.incrementWriteOps(1);
        return new FSDataOutputStream(files.create(whole(path), overwrite, makesDirectories), null);
    }

    @Override
    public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
        throw noAppend(path);
    }

    private static UnsupportedOperationException noAppend(Path path) {
        return new UnsupportedOperationException(
                path + ": raftlake:// has no append: a file becomes visible whole, when it is closed");
    }

    @Override
    public void setTimes(Path path, long modificationMs, long accessMs) throws IOException {
        getFileStatus(path);
        throw new UnsupportedOperationException(path + ": raftlake:// keeps the time at which a file was written");
    }

    /**
     * False, as in HDFS, where there is no source, where a file stands at the target, or where the target's directory is
     * missing. A target that is a directory takes the source in.
     */
    @Override
    public boolean rename(Path source, Path target) throws IOException {
        statistics.incrementWriteOps(1);
        return files.rename(whole(source), whole(target));
    }

    /** Renames to exactly this name, atomically also where it overwrites. Errors tell why not. */
    @Override
    @SuppressWarnings("deprecation")
    protected void rename(Path source, Path target, Options.Rename... options) throws IOException {
        statistics.incrementWriteOps(1);
        boolean overwrite = java.util.Arrays.asList(options).contains(Options.Rename.OVERWRITE);
        files.move(whole(source), whole(target), overwrite);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        statistics.incrementWriteOps(1);
        return files.delete(whole(path), recursive);
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        statistics.incrementWriteOps(1);
        files.makeDirectories(whole(path));
        return true;
    }

    // --- paths -------------------------------------------------------------------------------------------------------

    /** With scheme and pipeline. */
    private Path whole(Path path) {
        checkPath(path);
        return path.makeQualified(uri, workingDirectory);
    }

    @Override
    public void setWorkingDirectory(Path path) {
        workingDirectory = whole(path);
    }

    @Override
    public Path getWorkingDirectory() {
        return workingDirectory;
    }

    @Override
    public boolean hasPathCapability(Path path, String capability) throws IOException {
        return switch (capability.toLowerCase(java.util.Locale.ROOT)) {
            case CommonPathCapabilities.FS_CHECKSUMS, CommonPathCapabilities.ABORTABLE_STREAM -> true;
            default -> super.hasPathCapability(path, capability);
        };
    }
}
