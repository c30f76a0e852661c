package io.raftlake.spark.fs;

import io.raftlake.spark.log.Logs;
import io.raftlake.spark.quorum.KeySpace;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CompositeCrcFileChecksum;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.DataChecksum;

/**
 * The operations of the file system on whole paths, {@code raftlake://<pipeline>/<path>}: turns them into locations, and what
 * is found into Hadoop's terms. The pipeline is that of each path, since Hadoop takes two names that differ in case for one
 * file system.
 */
public final class QuorumFiles {
    /** Files have no blocks. Programs that cut files by block size get large pieces. */
    static final long BLOCK_BYTES = 32L << 20;

    /** So often a reader looks again, when the blob that it was led to is gone. */
    private static final int OPEN_TRIES = 5;

    private static final int REPLICATION = 1;

    /** Bytes of files that are read ahead, in a process. */
    private static final AtomicLong AHEAD_ROOM = new AtomicLong(64L << 20);

    private final Namespace names;
    private final Moves moves;
    private final Deletions deletions;
    private final KeySpace space;
    private final Blobs blobs;
    private final FsSettings settings;
    private final FileSystem.Statistics statistics;
    private final FilesAhead ahead;

    /** {@code logs} is null where none are set. Starts the collection of orphaned blobs where one is due. */
    public static QuorumFiles open(String pipeline, FsSettings settings, KeySpace space, Logs logs, Configuration conf,
            FileSystem.Statistics statistics) throws IOException {
        Location.requirePipeline(pipeline);
        BlobStore files = settings.baseUri() == null ? null : new HadoopBlobStore(settings.baseUri(), conf);
        BlobStore quorum = logs == null ? null : new LogBlobStore(logs);
        BlobStore store = files == null && quorum == null ? null : new BlobPlaces(files, quorum);
        Blobs blobs = new Blobs(space, store, store == null ? null : new BlobCollector(space, store, settings.orphanAgeMs()));
        blobs.collectIfDue(pipeline);
        return new QuorumFiles(space, blobs, settings, statistics, new FilesAhead(AHEAD_ROOM), Fence.NONE);
    }

    private QuorumFiles(
            KeySpace space, Blobs blobs, FsSettings settings, FileSystem.Statistics statistics, FilesAhead ahead, Fence fence) {
        this.space = space;
        this.blobs = blobs;
        this.settings = settings;
        this.statistics = statistics;
        this.ahead = ahead;
        this.names = new Namespace(space, blobs, fence);
        this.moves = new Moves(names);
        this.deletions = new Deletions(names);
    }

    /** The same files for a writer each of whose changes must find {@code fence} true. */
    public QuorumFiles fenced(Fence fence) {
        return new QuorumFiles(space, blobs, settings, statistics, ahead, fence);
    }

    public KeySpace space() {
        return space;
    }

    static Location at(Path path) throws IOException {
        return Location.of(path.toUri().getAuthority(), path.toUri().getPath());
    }

    /** For one who knows which files will be opened soon. */
    public ReadAhead readAhead() {
        return new ReadAhead(this, ahead);
    }

    public InputStream open(Path path) throws IOException {
        Location at = at(path);
        byte[] content = ahead.take(at);
        return content == null ? openNow(at) : Content.inline(at, content, statistics);
    }

    /** The content of a file of at most so many bytes. */
    byte[] read(Path path, int bytesMax) throws IOException {
        try (Content content = openNow(at(path))) {
            if (content.available() > bytesMax) {
                throw new PathIOException(path.toString(), content.available() + " bytes, more than " + bytesMax);
            }
            return content.readAllBytes();
        }
    }

    private Content openNow(Location at) throws IOException {
        for (int attempt = 1; ; attempt++) {
            Found found = names.require(at);
            if (found.isDirectory()) {
                throw new FileNotFoundException(at + " is a directory");
            }
            Node file = found.node();
            if (!file.isBlob()) {
                return Content.inline(at, file.content(), statistics);
            }
            try {
                return openBlob(at, file);
            } catch (FileNotFoundException gone) {
                // A file that was replaced loses its old blob at once: the new one is found by a second look.
                if (attempt == OPEN_TRIES || names.find(at).version() == found.version()) {
                    throw new PathIOException(at.toString(), "its blob " + file.blob().uri() + " is missing");
                }
            }
        }
    }

    /** A file whose content the caller has, read as one that was opened. */
    public InputStream opened(Path path, byte[] content) throws IOException {
        return Content.inline(at(path), content, statistics);
    }

    private Content openBlob(Location at, Node file) throws IOException {
        if (!names.blobs().hasPlace()) {
            throw new PathIOException(at.toString(), BlobPlaces.remedy(file.blob().uri()));
        }
        BlobReader reader = new BlobReader(at, file, names.blobs().store(), BlobCopies.OF_PROCESS);
        return new Content(at, file.length(), file.blob().chunkBytes(), reader, statistics);
    }

    /**
     * Copies the content of a large file to the local disk, where {@link #open} finds it. The place of its blob; nothing where
     * the key has the content.
     */
    public Optional<String> copy(Path path) throws IOException {
        Location at = at(path);
        Node file = names.require(at).node();
        if (!file.isBlob()) {
            return Optional.empty();
        }
        try (InputStream content = openBlob(at, file)) {
            BlobCopies.OF_PROCESS.add(file.blob().uri(), content);
        }
        return Optional.of(file.blob().uri());
    }

    public OutputStream create(Path path, boolean overwrite, boolean makesDirectories) throws IOException {
        Location at = at(path);
        requireNoRoot(at);
        Namespace.Plan plan = names.plan(at, overwrite, makesDirectories);
        return new FileWriter(names, at, plan, overwrite, makesDirectories, settings.inlineBytes(), statistics);
    }

    /**
     * A file whose place is looked at when it is closed, and not before: {@link #create}'s errors come then. Directories are
     * made. The stream is {@link org.apache.hadoop.fs.Abortable}.
     */
    public OutputStream createAtClose(Path path, boolean overwrite) throws IOException {
        Location at = at(path);
        requireNoRoot(at);
        return new FileWriter(names, at, null, overwrite, true, settings.inlineBytes(), statistics);
    }

    private static void requireNoRoot(Location at) throws IOException {
        if (at.isRoot()) {
            throw new FileAlreadyExistsException(at + " is a directory");
        }
    }

    public boolean exists(Path path) throws IOException {
        return names.find(at(path)).exists();
    }

    public FileStatus status(Path path) throws IOException {
        return status(names.require(at(path)));
    }

    public FileStatus[] list(Path path) throws IOException {
        Found found = names.require(at(path));
        if (found.isFile()) {
            return new FileStatus[] {status(found)};
        }
        List<FileStatus> children = new ArrayList<>();
        for (Found child : names.children(found.location())) {
            children.add(status(child));
        }
        return children.toArray(FileStatus[]::new);
    }

    private static FileStatus status(Found found) throws IOException {
        Node node = found.node();
        Location at = found.location();
        Path path = new Path("raftlake", at.pipeline(), at.path());
        String user = System.getProperty("user.name", "");
        if (node.isDirectory()) {
            return new FileStatus(0, true, 0, 0, node.mtimeMs(), 0, FsPermission.getDirDefault(), user, user, path);
        }
        FsPermission permission = FsPermission.getFileDefault();
        return new FileStatus(
                node.length(), false, REPLICATION, BLOCK_BYTES, node.mtimeMs(), 0, permission, user, user, path);
    }

    public FileChecksum checksum(Path path) throws IOException {
        Found found = names.require(at(path));
        if (found.isDirectory()) {
            throw new FileNotFoundException(found.location() + " is a directory");
        }
        // Bytes per checksum are a fact of HDFS's blocks; a checksum of the whole does not depend on them.
        return new CompositeCrcFileChecksum((int) found.node().crc(), DataChecksum.Type.CRC32C, FileWriter.CHUNK_BYTES);
    }

    public void makeDirectories(Path path) throws IOException {
        names.makeDirectories(at(path));
    }

    public boolean delete(Path path, boolean recursive) throws IOException {
        return deletions.delete(at(path), recursive);
    }

    /**
     * Deletes a file for a writer who needs no room for its name: with the next file that is put here, where it is a small one
     * that was put here. Whoever looks through these files finds it gone at once; others see it until then.
     */
    public void deleteLater(Path path) throws IOException {
        deletions.deleteLater(at(path));
    }

    /** To exactly this name; errors tell why not. */
    public void move(Path source, Path target, boolean overwrite) throws IOException {
        moves.move(at(source), samePipeline(at(source), at(target)), overwrite);
    }

    /** With the answers of HDFS: false for what users may expect to go wrong. */
    public boolean rename(Path source, Path target) throws IOException {
        Location from = at(source);
        Location to = samePipeline(from, at(target));
        Found found = names.find(from);
        if (!found.exists() || from.isRoot() || to.isBelow(from)) {
            return false;
        }
        if (from.equals(to)) {
            return found.isFile();
        }
        if (names.find(to).isDirectory()) {
            to = to.child(from.name());
            if (to.equals(from) || to.isBelow(from)) {
                return false;
            }
        }
        try {
            moves.move(from, to, false);
            return true;
        } catch (FileAlreadyExistsException | FileNotFoundException | ParentNotDirectoryException no) {
            return false;
        }
    }

    private static Location samePipeline(Location source, Location target) throws IOException {
        if (!source.pipeline().equals(target.pipeline())) {
            throw new PathIOException(source.toString(), "a rename stays within its pipeline: " + target);
        }
        return target;
    }
}
