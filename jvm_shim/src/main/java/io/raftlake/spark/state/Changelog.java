package io.raftlake.spark.state;

import io.raftlake.spark.log.Ahead;
import io.raftlake.spark.log.LogStartException;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.Fetched;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Numbered;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.state.Trailer.Ancestor;
import io.raftlake.spark.state.Trailer.Piece;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The changes of one state store's partition: a partition of a topic, in which each version is one atomic batch, or several of
 * which the last one makes the others count. Each batch ends with a {@link Trailer}. Guarantees:
 *
 * <ol>
 *   <li>A version is found whole, or not at all. {@link Draft#commit} returns when a majority has it.</li>
 *   <li>Of a version only the attempt with the id that was asked for is read, whatever else lies between.</li>
 *   <li>{@link #trim} removes batches of older versions only, and only where no newer version lies before them.</li>
 * </ol>
 *
 * <p>One thread writes and reads; another one may trim meanwhile.
 */
final class Changelog {
    /** A version goes in pieces of about so many bytes. */
    static final int PIECE_BYTES = 2 << 20;

    /** What a topic takes as one batch at most; a single change may be larger than a piece. */
    static final int BATCH_BYTES_MAX = 8 << 20;

    private static final int FETCH_BYTES = 4 << 20;
    private static final int WAIT_MS = 500;

    private final Logs logs;
    private final Partition at;
    private final long timeoutMs;
    private final int pieceBytes;

    /** Where versions lie, as far as this process has seen. A place never changes. */
    private final Map<Name, List<Piece>> places = new ConcurrentHashMap<>();

    /** Batches that this process wrote, by their first offset: they are trimmed without a look. */
    private final TreeMap<Long, Written> written = new TreeMap<>();

    private List<Numbered> window = List.of();
    private int cursor;

    /** The changes that a load of the newest version reads first, until a read takes them. */
    private Ahead<List<Numbered>> ahead;

    private volatile long trimmedTo;

    /** A version as one attempt wrote it. */
    record Name(long version, String id) {}

    private record Written(long trailer, long version) {}

    /** {@code timeoutMs}: how long a read waits for records that are known to be there. */
    Changelog(Logs logs, Partition at, long timeoutMs) {
        this(logs, at, timeoutMs, PIECE_BYTES);
    }

    Changelog(Logs logs, Partition at, long timeoutMs, int pieceBytes) {
        this.logs = logs;
        this.at = at;
        this.timeoutMs = timeoutMs;
        this.pieceBytes = pieceBytes;
    }

    @Override
    public String toString() {
        return "changelog " + at;
    }

    // --- writing -----------------------------------------------------------------------------------------------------

    /** Opens a changelog, when it is needed. */
    @FunctionalInterface
    interface Opening {
        Changelog open() throws IOException;
    }

    /** A version in the making. Nothing of it counts before it is committed, and nothing is opened before a piece is full. */
    static final class Draft {
        private final Opening opening;
        private final long version;
        private final String id;
        private final int pieceBytes;
        private final List<Piece> pieces = new ArrayList<>();
        private List<LogRecord> records = new ArrayList<>();
        private long bytes;

        /** {@code id} is null in checkpoint format 1. */
        Draft(Opening opening, long version, String id) {
            this(opening, version, id, PIECE_BYTES);
        }

        private Draft(Opening opening, long version, String id, int pieceBytes) {
            this.opening = opening;
            this.version = version;
            this.id = id;
            this.pieceBytes = pieceBytes;
        }

        /** Sends a piece first where the record does not fit behind those before it. */
        void add(LogRecord record) throws IOException {
            int more = Change.bytes(record);
            if (!records.isEmpty() && bytes + more > pieceBytes) {
                send(new Trailer(version, id, records.size(), false, List.of(), List.of()));
            }
            records.add(record);
            bytes += more;
        }

        private void send(Trailer trailer) throws IOException {
            records.add(trailer.encode());
            pieces.add(opening.open().append(version, records));
            records = new ArrayList<>();
            bytes = 0;
        }

        /** Makes the version count; a majority has it afterwards. The places of its batches, in their order. */
        List<Piece> commit(List<Name> lineage) throws IOException {
            Changelog changelog = opening.open();
            List<Ancestor> ancestors = lineage.stream().map(changelog::ancestor).toList();
            send(new Trailer(version, id, records.size(), true, List.copyOf(pieces), ancestors));
            List<Piece> place = List.copyOf(pieces);
            if (id != null) {
                changelog.places.put(new Name(version, id), place);
            }
            changelog.release();
            return place;
        }
    }

    Draft draft(long version, String id) {
        return new Draft(() -> this, version, id, pieceBytes);
    }

    private Piece append(long version, List<LogRecord> batch) throws IOException {
        long first = logs.append(at, batch);
        Piece piece = new Piece(first, first + batch.size() - 1);
        synchronized (written) {
            written.put(first, new Written(piece.trailer(), version));
        }
        return piece;
    }

    private Ancestor ancestor(Name name) {
        List<Piece> place = places.get(name);
        if (place == null || place.size() > 1) {
            return new Ancestor(name.version(), name.id(), -1, -1);
        }
        return new Ancestor(name.version(), name.id(), place.get(0).first(), place.get(0).trailer());
    }

    // --- reading -----------------------------------------------------------------------------------------------------

    /** Where a version lies; nothing where it does not, or not whole. */
    Optional<List<Piece>> find(Name name) throws IOException {
        List<Piece> known = places.get(name);
        return known == null ? search(name) : Optional.of(known);
    }

    /** Looks at one batch after the other, from the end on: what is asked for is among the newest. */
    private Optional<List<Piece>> search(Name name) throws IOException {
        walkBack((trailer, offset) -> {
            remember(trailer, offset);
            return places.containsKey(name);
        });
        return Optional.ofNullable(places.get(name));
    }

    /** Sees a batch's trailer; true ends the walk. */
    @FunctionalInterface
    private interface Seen {
        boolean by(Trailer trailer, long offset) throws IOException;
    }

    private void walkBack(Seen seen) throws IOException {
        long start = logs.earliest(at);
        long offset = logs.end(at) - 1;
        while (offset >= start) {
            Numbered found = lookAt(offset);
            Trailer trailer = found == null ? null : Trailer.decode(found);
            if (trailer == null) {
                // No record of a batch of ours: a gap, which a change of leaders may leave.
                offset--;
            } else if (seen.by(trailer, offset)) {
                return;
            } else {
                offset = trailer.pieceAt(offset).first() - 1;
            }
        }
    }

    /** Places have names in checkpoint format 2 only. */
    private void remember(Trailer trailer, long offset) {
        if (!trailer.isLast() || trailer.id() == null) {
            return;
        }
        places.put(new Name(trailer.version(), trailer.id()), trailer.piecesAt(offset));
        for (Ancestor one : trailer.lineage()) {
            if (one.trailer() >= 0) {
                places.putIfAbsent(new Name(one.version(), one.id()), List.of(new Piece(one.first(), one.trailer())));
            }
        }
    }

    /** The record at an offset of the log, or null for a gap. */
    private Numbered lookAt(long offset) throws IOException {
        try {
            Fetched got = logs.fetch(at, offset, 1, WAIT_MS);
            return got.records().isEmpty() || got.records().get(0).offset() != offset ? null : got.records().get(0);
        } catch (LogStartException trimmed) {
            return null;
        }
    }

    /**
     * Finds where the newest version and those before it lie, and begins to read their changes, as far as one fetch reaches.
     * These versions; none where nothing is there, and in format 1.
     */
    List<Name> lookAhead() throws IOException {
        List<Name> found = new ArrayList<>();
        walkBack((trailer, offset) -> {
            remember(trailer, offset);
            if (trailer.isLast() && trailer.id() != null) {
                readAhead(firstToRead(trailer, offset));
                trailer.lineage().forEach(one -> found.add(new Name(one.version(), one.id())));
                found.add(new Name(trailer.version(), trailer.id()));
            }
            return trailer.isLast();
        });
        return found;
    }

    private synchronized void readAhead(long first) {
        ahead = Ahead.of("the changes of " + this, () -> await(first, FETCH_BYTES));
    }

    /** Waits for what is read ahead, if anything is. What failed there is asked for again by the one who needs it. */
    private void takeAhead() throws InterruptedIOException {
        Ahead<List<Numbered>> begun = ahead;
        ahead = null;
        List<Numbered> brought = begun == null ? null : begun.getOrNull();
        if (brought != null) {
            window = brought;
            cursor = -1;
        }
    }

    /** The first change behind the snapshot that a version is built on. The first version of its lineage is in the snapshot. */
    private static long firstToRead(Trailer trailer, long offset) {
        return trailer.lineage().stream()
                .skip(1)
                .filter(one -> one.first() >= 0)
                .mapToLong(Ancestor::first)
                .findFirst()
                .orElse(trailer.piecesAt(offset).get(0).first());
    }

    /** The trailer of a version whose place is known. */
    Trailer trailer(List<Piece> place) throws IOException {
        long offset = place.get(place.size() - 1).trailer();
        Numbered held = held(offset);
        Trailer trailer = Trailer.decode(held == null ? await(offset, 1).get(0) : held);
        if (trailer == null || !trailer.isLast()) {
            throw new IOException(this + " has no end of a version at offset " + offset);
        }
        remember(trailer, offset);
        return trailer;
    }

    /** A record that is known to be there. FileNotFoundException where it was deleted. */
    synchronized Numbered record(long offset) throws IOException {
        Numbered held = held(offset);
        if (held == null) {
            window = await(offset, FETCH_BYTES);
            cursor = 0;
            held = window.get(0);
        }
        return held;
    }

    /** The record if it is among those that were read last, else null. */
    private synchronized Numbered held(long offset) throws InterruptedIOException {
        takeAhead();
        if (cursor + 1 < window.size() && window.get(cursor + 1).offset() == offset) {
            return window.get(++cursor);
        }
        int low = 0;
        int high = window.size() - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            long found = window.get(middle).offset();
            if (found == offset) {
                cursor = middle;
                return window.get(middle);
            }
            if (found < offset) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        return null;
    }

    /** The records from one on that is known to be there. */
    private List<Numbered> await(long offset, int maxBytes) throws IOException {
        long endNs = System.nanoTime() + timeoutMs * 1_000_000;
        do {
            Fetched got;
            try {
                got = logs.fetch(at, offset, maxBytes, WAIT_MS);
            } catch (LogStartException trimmed) {
                throw new FileNotFoundException("offset " + offset + " of " + this + " was deleted: " + trimmed.getMessage());
            }
            if (!got.records().isEmpty()) {
                if (got.records().get(0).offset() != offset) {
                    throw new IOException(this + " has no record at offset " + offset);
                }
                return got.records();
            }
        } while (System.nanoTime() < endNs);
        throw new QuorumUnavailableException(this + ": no node had offset " + offset + " within " + timeoutMs + " ms");
    }

    /** Lets go of the records that were read last, and of those that are read ahead. */
    synchronized void release() {
        if (ahead != null) {
            ahead.cancel();
            ahead = null;
        }
        window = List.of();
        cursor = 0;
    }

    /** The highest version that lies in the log whole; 0 for none. */
    long newestVersion() throws IOException {
        long[] newest = {0};
        walkBack((trailer, offset) -> {
            newest[0] = trailer.isLast() ? Math.max(newest[0], trailer.version()) : newest[0];
            return false;
        });
        return newest[0];
    }

    // --- trimming ----------------------------------------------------------------------------------------------------

    /** Removes what lies before the first batch of version {@code keep} or a newer one. */
    void trim(long keep) throws IOException {
        if (keep <= trimmedTo) {
            return;
        }
        long start = logs.earliest(at);
        long end = logs.end(at);
        long bound = start;
        while (bound < end) {
            Written batch = batchFrom(bound, end);
            if (batch == null || batch.version() >= keep) {
                break;
            }
            bound = batch.trailer() + 1;
        }
        if (bound > start) {
            logs.deleteRecords(at, bound);
            forget(bound, keep);
        }
        trimmedTo = keep;
    }

    private void forget(long bound, long keep) {
        synchronized (written) {
            written.headMap(bound).clear();
        }
        places.keySet().removeIf(name -> name.version() < keep);
    }

    /** The first batch at an offset or behind it; null for none before the end. */
    private Written batchFrom(long from, long end) throws IOException {
        synchronized (written) {
            Written own = written.get(from);
            if (own != null) {
                return own;
            }
        }
        long offset = from;
        while (offset < end) {
            Fetched got = logs.fetch(at, offset, FETCH_BYTES, WAIT_MS);
            for (Numbered found : got.records()) {
                Trailer trailer = Trailer.decode(found);
                if (trailer != null) {
                    return new Written(found.offset(), trailer.version());
                }
            }
            if (got.nextOffset() == offset) {
                return null;
            }
            offset = got.nextOffset();
        }
        return null;
    }
}
