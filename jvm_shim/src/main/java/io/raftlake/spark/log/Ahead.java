package io.raftlake.spark.log;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What a thread of its own brings, for who will ask for it. */
public final class Ahead<T> {
    private static final Logger LOG = LoggerFactory.getLogger(Ahead.class);

    private static final ExecutorService THREADS = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "raftlake-ahead");
        thread.setDaemon(true);
        return thread;
    });

    private final String what;
    private final Future<T> brought;

    private Ahead(String what, Future<T> brought) {
        this.what = what;
        this.brought = brought;
    }

    /** Brings what is asked for. */
    @FunctionalInterface
    public interface Bringing<T> {
        T bring() throws IOException;
    }

    /** Begins at once. {@code what} stands in the error of who is interrupted. */
    public static <T> Ahead<T> of(String what, Bringing<T> bringing) {
        return new Ahead<>(what, THREADS.submit(bringing::bring));
    }

    /** The same of several, one after the other in one thread. */
    public static <T> List<Ahead<T>> inTurn(String what, List<Bringing<T>> bringings) {
        List<FutureTask<T>> tasks = bringings.stream().map(each -> new FutureTask<>(each::bring)).toList();
        THREADS.execute(() -> tasks.forEach(FutureTask::run));
        return tasks.stream().map(task -> new Ahead<>(what, task)).toList();
    }

    /** Waits for it. What failed there is thrown here; InterruptedIOException where the caller is interrupted. */
    public T get() throws IOException {
        try {
            return brought.get();
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof IOException error) {
                throw error;
            }
            throw new IOException(failed.getCause().getMessage(), failed.getCause());
        } catch (CancellationException cancelled) {
            throw new InterruptedIOException("another thread that waited for " + what + " was interrupted");
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            brought.cancel(true);
            throw new InterruptedIOException("interrupted while it waited for " + what);
        }
    }

    /** The same, and null where it failed: the caller asks for itself then. */
    public T getOrNull() throws InterruptedIOException {
        try {
            return get();
        } catch (InterruptedIOException interrupted) {
            throw interrupted;
        } catch (IOException failed) {
            LOG.debug("{} could not be brought ahead", what, failed);
            return null;
        }
    }

    /** Waits until it is over, well or not. It goes on where the caller is interrupted, who stays so. */
    public void awaitEnd() {
        try {
            brought.get();
        } catch (ExecutionException | CancellationException failed) {
            LOG.debug("{} failed", what, failed);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Nobody will ask any more. */
    public void cancel() {
        brought.cancel(true);
    }
}
