package io.raftlake.spark.checkpoint;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.fs.QuorumFiles;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PathIOException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/**
 * Spark's file manager for a path at {@code raftlake://}. A file that is created is one transaction of the quorum, when its
 * stream is closed. Reads see what was committed before they began.
 *
 * <p>The first call for a query run, on a thread of the run, settles which run the manager works for: from then on every
 * change of the manager is fenced ({@link Ownership}). What the owner of the checkpoint knows of a directory, it does not ask
 * ({@link NewestBatch}), nor what it wrote into the log of a source ({@link WrittenFiles}). Calls on threads of users, who
 * begin or inspect queries, are not fenced. The file that ends a batch decides what a sink has written, where the sink asked for
 * it ({@link EpochEnds}). The file that begins one may be committed beside what Spark does next ({@link BatchPlans}).
 */
public final class CheckpointFiles implements CheckpointFileManager {
    private final RaftlakeFileSystem fileSystem;
    private final Path path;
    private final Configuration conf;
    private final Run.Finder runs;
    private final WrittenFiles written = new WrittenFiles();
    private volatile Fenced fenced;

    /** The files of a run, and its fence. */
    private record Fenced(QuorumFiles files, Ownership ownership) {}

    public CheckpointFiles(Path path, Configuration conf) throws IOException {
        this(path, conf, Run::current);
    }

    CheckpointFiles(Path path, Configuration conf, Run.Finder runs) throws IOException {
        this.fileSystem = RaftlakeFileSystem.of(path, withThisJar(conf));
        this.path = fileSystem.makeQualified(path);
        this.conf = conf;
        this.runs = runs;
    }

    /** A jar that came to a running session by ADD JAR has a class loader of its own, which the session's settings do not know. */
    private static Configuration withThisJar(Configuration conf) {
        Configuration own = new Configuration(conf);
        own.setClassLoader(CheckpointFiles.class.getClassLoader());
        return own;
    }

    /** The files, as the run of this thread may change them. Throws CheckpointFencedException for a run that was replaced. */
    private QuorumFiles files() throws IOException {
        if (fenced == null) {
            fenced = fence();
        }
        if (fenced == null) {
            return fileSystem.files();
        }
        fenced.ownership().enter();
        Optional<EpochEnds> ends = fenced.ownership().ends();
        if (ends.isPresent()) {
            ends.get().plans().await();
        }
        return fenced.files();
    }

    /** Null where the thread works for no run, or the path is in no checkpoint of the run's query. */
    private Fenced fence() throws IOException {
        Optional<Run> run = runs.find(conf);
        if (run.isEmpty()) {
            return null;
        }
        QuorumFiles files = fileSystem.files();
        Optional<CheckpointRoot> root = CheckpointRoot.of(files, path);
        if (root.isEmpty()) {
            return null;
        }
        if (run.get().isOfDriver() && !root.get().query().equals(run.get().query())) {
            requireNotChanged(root.get());
            return null;
        }
        Ownership ownership = Ownership.of(files.space(), root.get(), run.get());
        return new Fenced(files.fenced(ownership), ownership);
    }

    /**
     * Spark has read {@code metadata} before the thread of the run begins. A command that changes the checkpoint meanwhile, as
     * `raftlake checkpoints rewind` does, is not to find a run that goes on unfenced behind it.
     */
    private static void requireNotChanged(CheckpointRoot root) throws PathIOException {
        if (root.isBeingChanged()) {
            throw new PathIOException(root.path().toString(), "a command is changing this checkpoint (" + root.query()
                    + "), and nothing was read or written. Start the query again behind it");
        }
    }

    /** What is known of a directory without asking: nothing before the manager is fenced. */
    private Optional<NewestBatch> newestIn(Path directory) {
        return fenced == null || directory == null ? Optional.empty() : fenced.ownership().newestIn(directory);
    }

    private boolean isOfSource(Path file) {
        return fenced != null && fenced.ownership().isLogOfSource(file.getParent());
    }

    private Path whole(Path given) {
        return fileSystem.makeQualified(given);
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path given, boolean overwriteIfPossible) {
        try {
            Path file = whole(given);
            QuorumFiles files = files();
            newestIn(file.getParent()).ifPresent(newest -> newest.created(file.getName()));
            Optional<EpochEnds> ends = fenced == null ? Optional.empty() : fenced.ownership().ends();
            Optional<EpochEnds.Outcome> outcome = ends.flatMap(each -> each.outcomeOf(file));
            if (outcome.isPresent()) {
                QuorumFiles deciding = files.fenced(new DecidingFence(fenced.ownership(), outcome.get()));
                return new DecidingStream(deciding.createAtClose(file, false), ends.get(), outcome.get());
            }
            OutputStream out = files.createAtClose(file, overwriteIfPossible);
            if (ends.isPresent() && ends.get().plans().areAwaited() && ends.get().isPlan(file)) {
                return new PlanStream(out, file, ends.get().plans());
            }
            Optional<Runnable> rest = ends.flatMap(each -> each.takeRest(file));
            return rest.isPresent()
                    ? new LastStream(out, rest.get()) : new AtomicStream(isOfSource(file) ? written.recording(file, out) : out);
        } catch (IOException error) {
            throw sneaky(error);
        }
    }

    /** Spark's methods name no checked exception, and its callers expect IOExceptions as they are. */
    @SuppressWarnings("unchecked")
    static <E extends Throwable> RuntimeException sneaky(Throwable error) throws E {
        throw (E) error;
    }

    @Override
    public FSDataInputStream open(Path given) {
        try {
            Path file = whole(given);
            QuorumFiles files = files();
            Optional<byte[]> own = written.content(file);
            return new FSDataInputStream(own.isPresent() ? files.opened(file, own.get()) : files.open(file));
        } catch (IOException error) {
            throw sneaky(error);
        }
    }

    @Override
    public FileStatus[] list(Path given, PathFilter filter) {
        try {
            FileStatus[] all = files().list(whole(given));
            List<String> names = Arrays.stream(all).map(status -> status.getPath().getName()).toList();
            newestIn(whole(given)).ifPresent(newest -> newest.listed(names));
            return Arrays.stream(all).filter(status -> filter.accept(status.getPath())).toArray(FileStatus[]::new);
        } catch (IOException error) {
            throw sneaky(error);
        }
    }

    @Override
    public void mkdirs(Path given) {
        try {
            files().makeDirectories(whole(given));
        } catch (IOException error) {
            throw sneaky(error);
        }
    }

    /** Whether the next batch is there is what each batch asks: the owner knows it ({@link NewestBatch}). */
    @Override
    public boolean exists(Path given) {
        try {
            Path path = whole(given);
            QuorumFiles files = files();
            if (written.content(path).isPresent()) {
                return true;
            }
            if (newestIn(path.getParent()).filter(newest -> newest.isAbsent(path.getName())).isPresent()) {
                return false;
            }
            boolean exists = files.exists(path);
            if (exists && fenced != null) {
                fenced.ownership().confirmWhatWasFound();
            }
            return exists;
        } catch (IOException error) {
            throw sneaky(error);
        }
    }

    /** Spark deletes an old batch of each log in each batch. That goes with the next batch. */
    @Override
    public void delete(Path given) {
        try {
            Path path = whole(given);
            QuorumFiles files = files();
            written.forget(path);
            if (newestIn(path.getParent()).filter(newest -> newest.isOld(path.getName())).isPresent()) {
                files.deleteLater(path);
            } else {
                files.delete(path, true);
            }
        } catch (IOException error) {
            throw sneaky(error);
        }
    }

    @Override
    public boolean isLocal() {
        return false;
    }

    @Override
    public Path createCheckpointDirectory() {
        mkdirs(path);
        return path;
    }

    /** Visible when it is closed, or never. */
    private static class AtomicStream extends CancellableFSDataOutputStream {
        AtomicStream(OutputStream file) {
            super(file);
        }

        @Override
        public void cancel() {
            ((Abortable) underlyingStream()).abort();
        }
    }

    /** The file that begins a batch: its commit goes on behind {@code close()}. */
    private static final class PlanStream extends AtomicStream {
        private final Path file;
        private final BatchPlans plans;
        private boolean isOver;

        PlanStream(OutputStream out, Path file, BatchPlans plans) {
            super(out);
            this.file = file;
            this.plans = plans;
        }

        @Override
        public void close() throws IOException {
            if (isOver) {
                return;
            }
            isOver = true;
            plans.begin(file.toString(), () -> {
                super.close();
                return null;
            });
        }

        @Override
        public void cancel() {
            if (!isOver) {
                isOver = true;
                super.cancel();
            }
        }
    }

    /** The file that ends a batch, and what is left to wait for once it is there. */
    private static final class LastStream extends AtomicStream {
        private Runnable rest;

        LastStream(OutputStream file, Runnable rest) {
            super(file);
            this.rest = rest;
        }

        @Override
        public void close() throws IOException {
            super.close();
            Runnable once = rest;
            rest = null;
            if (once != null) {
                once.run();
            }
        }

        @Override
        public void cancel() {
            rest = null;
            super.cancel();
        }
    }

    /** The file that ends a batch, and decides what a sink has written of it: both when it is closed, or neither. */
    private static final class DecidingStream extends AtomicStream {
        private final EpochEnds ends;
        private final EpochEnds.Outcome outcome;
        private boolean isOver;

        DecidingStream(OutputStream file, EpochEnds ends, EpochEnds.Outcome outcome) {
            super(file);
            this.ends = ends;
            this.outcome = outcome;
        }

        @Override
        public void close() throws IOException {
            if (isOver) {
                return;
            }
            isOver = true;
            try {
                super.close();
            } catch (IOException | RuntimeException error) {
                outcome.failed();
                throw error;
            }
            ends.ended();
            outcome.decided();
        }

        @Override
        public void cancel() {
            super.cancel();
            if (!isOver) {
                isOver = true;
                outcome.failed();
            }
        }
    }
}
