package io.raftlake.spark.state;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.fs.BlobCopies;
import io.raftlake.spark.fs.FsSettings;
import io.raftlake.spark.fs.QuorumFiles;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Follows the snapshots of state that other executors run, so that this one can take over without fetching them: their data
 * files are copied to the local disk ({@link BlobCopies}), the newest snapshot of each partition first.
 *
 * <p>Followed are the partitions of each store of which this process has a partition open. When it has none of them open any
 * more, their copies go. The state that is loaded never depends on a copy. A round that fails is told once, and keeps the
 * copies that are there.
 */
public final class Standby {
    /** One for all queries of a process, since the bound of bytes is that of its disk. */
    public static final Standby OF_PROCESS = new Standby();

    /** A task may load the version before the newest snapshot: it repeats the newest batch. */
    private static final int SNAPSHOTS = 2;

    private static final Logger LOG = LoggerFactory.getLogger(Standby.class);

    private final BlobCopies copies = BlobCopies.OF_PROCESS;

    /** Guarded by itself. */
    private final Map<Store, Opened> opened = new HashMap<>();

    private final AtomicBoolean isDue = new AtomicBoolean();
    private final ThreadPoolExecutor thread = new ThreadPoolExecutor(
            1, 1, 10, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), Standby::daemon);

    /** The places of data files that are wanted; only rounds use it. */
    private final Map<Path, String> places = new HashMap<>();

    private volatile long beganNs = System.nanoTime() - Long.MAX_VALUE / 2;
    private boolean isTold;

    /** A store of an operator, with all of its partitions. */
    private record Store(String root, long operator, String name) {
        static Store of(StateStoreId id) {
            return new Store(id.checkpointRootLocation(), id.operatorId(), id.storeName());
        }

        Path operatorDirectory() {
            return new Path(root, Long.toString(operator));
        }

        Path directory(int partition) {
            return new StateStoreId(root, operator, partition, name).storeCheckpointLocation();
        }
    }

    /** How often each partition is open, which of them have been loaded, and the settings of the newest that was opened. */
    private record Opened(Map<Integer, Integer> times, Set<Integer> loaded, Configuration conf) {
        Opened with(int partition, int more, Configuration newest) {
            Map<Integer, Integer> after = new HashMap<>(times);
            after.merge(partition, more, Integer::sum);
            after.values().remove(0);
            Set<Integer> still = new HashSet<>(loaded);
            still.retainAll(after.keySet());
            return new Opened(Map.copyOf(after), Set.copyOf(still), newest);
        }

        Opened withLoaded(int partition) {
            Set<Integer> after = new HashSet<>(loaded);
            after.add(partition);
            return new Opened(times, Set.copyOf(after), conf);
        }
    }

    private record Wanted(QuorumFiles files, Path path, long bytes) {}

    Standby() {
        thread.allowCoreThreadTimeOut(true);
    }

    private static Thread daemon(Runnable work) {
        Thread made = new Thread(work, "raftlake-standby");
        made.setDaemon(true);
        return made;
    }

    /** This process runs a partition from now on, until {@link #closed}. */
    public void opened(StateStoreId id, Configuration conf) {
        synchronized (opened) {
            Opened before = opened.getOrDefault(Store.of(id), new Opened(Map.of(), Set.of(), conf));
            opened.put(Store.of(id), before.with(id.partitionId(), 1, conf));
        }
    }

    /** What the partition's copies are for has happened. Until then they stay, though this process runs the partition. */
    public void loaded(StateStoreId id) {
        synchronized (opened) {
            opened.computeIfPresent(Store.of(id), (store, before) -> before.loaded().contains(id.partitionId())
                    || !before.times().containsKey(id.partitionId()) ? before : before.withLoaded(id.partitionId()));
        }
    }

    /** This process runs a partition no more. */
    public void closed(StateStoreId id) {
        boolean isLast;
        synchronized (opened) {
            Opened before = opened.get(Store.of(id));
            Opened after = before.with(id.partitionId(), -1, before.conf());
            isLast = after.times().isEmpty();
            if (isLast) {
                opened.remove(Store.of(id));
            } else {
                opened.put(Store.of(id), after);
            }
        }
        if (isLast) {
            wake(0);
        }
    }

    /** Lets a round follow, unless one is waiting, or began less than {@code pauseMs} ago. */
    public void wake(long pauseMs) {
        boolean isLongAgo = System.nanoTime() - beganNs >= pauseMs * 1_000_000;
        if (isLongAgo && isDue.compareAndSet(false, true)) {
            thread.execute(() -> {
                beganNs = System.nanoTime();
                isDue.set(false);
                look();
            });
        }
    }

    /** One round: deletes the copies that nothing needs any more, then copies what is new. */
    synchronized void look() {
        Map<Store, Opened> now;
        synchronized (opened) {
            now = Map.copyOf(opened);
        }
        try {
            long bytesMax = 0;
            List<Wanted> newest = new ArrayList<>();
            List<Wanted> older = new ArrayList<>();
            for (Map.Entry<Store, Opened> store : now.entrySet()) {
                bytesMax = Math.max(bytesMax, FsSettings.of(store.getValue().conf()).standbyBytes());
                want(store.getKey(), store.getValue(), newest, older);
            }
            newest.addAll(older);
            take(within(newest, bytesMax));
            isTold = false;
        } catch (Exception error) {
            // Spark's methods throw exceptions that they do not declare.
            if (!isTold) {
                LOG.warn("the standby of state cannot follow, and tries again: {}", error.toString());
            }
            isTold = true;
        }
    }

    private void want(Store store, Opened open, List<Wanted> newest, List<Wanted> older) throws IOException {
        RaftlakeFileSystem fileSystem = RaftlakeFileSystem.of(store.operatorDirectory(), open.conf());
        QuorumFiles files = fileSystem.files();
        for (int partition : partitions(files, fileSystem.makeQualified(store.operatorDirectory()))) {
            if (!open.loaded().contains(partition)) {
                Path directory = fileSystem.makeQualified(store.directory(partition));
                List<List<Path>> snapshots = snapshots(files, directory);
                for (int number = 0; number < Math.min(SNAPSHOTS, snapshots.size()); number++) {
                    for (Path zip : snapshots.get(number)) {
                        (number == 0 ? newest : older).addAll(dataFiles(files, directory, zip));
                    }
                }
            }
        }
    }

    private static List<Integer> partitions(QuorumFiles files, Path directory) throws IOException {
        List<Integer> found = new ArrayList<>();
        for (String name : Snapshot.names(files, directory)) {
            if (name.matches("[0-9]{1,9}")) {
                found.add(Integer.parseInt(name));
            }
        }
        return found;
    }

    /** The snapshots of each version, of several attempts where there are; newest version first. */
    private static List<List<Path>> snapshots(QuorumFiles files, Path directory) throws IOException {
        Map<Long, List<Path>> byVersion = new HashMap<>();
        for (String name : Snapshot.names(files, directory)) {
            if (name.matches("[0-9]{1,18}(_.*)?\\.zip")) {
                byVersion.computeIfAbsent(Snapshot.version(name), absent -> new ArrayList<>()).add(new Path(directory, name));
            }
        }
        Comparator<Map.Entry<Long, List<Path>>> byNumber = Map.Entry.comparingByKey();
        return byVersion.entrySet().stream().sorted(byNumber.reversed()).map(Map.Entry::getValue).toList();
    }

    /** What a snapshot is made of, besides the small files in it. */
    private static List<Wanted> dataFiles(QuorumFiles files, Path directory, Path zip) throws IOException {
        List<Wanted> found = new ArrayList<>();
        try (InputStream content = files.open(zip)) {
            Snapshot.dataFiles(directory, content).forEach((path, bytes) -> found.add(new Wanted(files, path, bytes)));
        } catch (FileNotFoundException deleted) {
            // By the maintenance of the executor that runs the partition.
        }
        return found;
    }

    /** Each file once, and the first of them that have room. */
    private static Collection<Wanted> within(List<Wanted> wanted, long bytesMax) {
        Map<Path, Wanted> chosen = new LinkedHashMap<>();
        long bytes = 0;
        for (Wanted file : wanted) {
            if (!chosen.containsKey(file.path()) && bytes + file.bytes() <= bytesMax) {
                chosen.put(file.path(), file);
                bytes += file.bytes();
            }
        }
        return chosen.values();
    }

    private void take(Collection<Wanted> wanted) throws IOException {
        Set<Path> paths = new HashSet<>();
        wanted.forEach(file -> paths.add(file.path()));
        places.keySet().retainAll(paths);
        copies.retain(new HashSet<>(places.values()));
        for (Wanted file : wanted) {
            String place = places.get(file.path());
            if (place == null || !place.isEmpty() && !copies.has(place)) {
                copy(file).ifPresent(found -> places.put(file.path(), found));
            }
        }
    }

    /** The place of the blob; empty text where the key has the content, nothing where the file was deleted. */
    private static Optional<String> copy(Wanted file) throws IOException {
        try {
            return Optional.of(file.files().copy(file.path()).orElse(""));
        } catch (FileNotFoundException deleted) {
            return Optional.empty();
        }
    }
}
