package io.raftlake.spark.state;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.kit.WatchedLogs;
import io.raftlake.spark.kit.WatchedLogs.Asked;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Numbered;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.state.Changelog.Draft;
import io.raftlake.spark.state.Changelog.Name;
import io.raftlake.spark.state.Trailer.Ancestor;
import io.raftlake.spark.state.Trailer.Piece;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Versions in a partition: layout, pieces, attempts that do not count, places, trimming. */
class ChangelogTest {
    /** Two changes of {@link #change} fit into a piece, and a third does not. */
    private static final int PIECE_BYTES = 150;

    private final Logs logs = Spaces.LOGS;
    private final Partition at = new Partition(Spaces.newTopic(), 0);
    private long base;

    @BeforeEach
    void createTopic() throws IOException {
        logs.ensureTopic(at.topic(), 1, Map.of());
        base = logs.end(at);
    }

    /** A batch, by offsets from the first one on that the topic had for us. */
    private Piece piece(long first, long trailer) {
        return new Piece(base + first, base + trailer);
    }

    /** The offset, counted the same. */
    private long start() throws IOException {
        return logs.earliest(at) - base;
    }

    private Changelog open() {
        return new Changelog(logs, at, 100, PIECE_BYTES);
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static LogRecord change(String text) {
        return Change.put(utf8(text), utf8("value of " + text));
    }

    private static List<Piece> write(Changelog changelog, Name name, List<Name> lineage, String... changes)
            throws IOException {
        Draft draft = changelog.draft(name.version(), name.id());
        for (String text : changes) {
            draft.add(change(text));
        }
        return draft.commit(lineage);
    }

    private static Optional<List<String>> read(Changelog changelog, Name name) throws IOException {
        Optional<List<Piece>> place = changelog.find(name);
        return place.isEmpty() ? Optional.empty() : Optional.of(read(changelog, place.get(), name.version()));
    }

    private static List<String> read(Changelog changelog, List<Piece> place, long version) {
        List<String> found = new ArrayList<>();
        ChangelogReader reader = new ChangelogReader(changelog, place, version);
        while (reader.hasNext()) {
            found.add(new String(reader.next()._2(), StandardCharsets.UTF_8));
        }
        reader.closeIfNeeded();
        return found;
    }

    private static List<String> lineage(Changelog changelog, Name name) throws IOException {
        return Arrays.stream(new ChangelogReader(changelog, changelog.find(name).orElseThrow(), name.version()).lineage())
                .map(item -> item.version() + item.checkpointUniqueId())
                .toList();
    }

    @Test
    void eachBatchEndsWithWhatItIsOf() throws IOException {
        Changelog changelog = open();
        assertEquals(List.of(piece(0, 1)), write(changelog, new Name(1, "x"), List.of(), "a"));
        assertEquals(List.of(piece(2, 2)), write(changelog, new Name(2, "y"), List.of(new Name(1, "x"))));
        List<Numbered> records = logs.fetch(at, base, 1 << 20, 0).records();
        assertEquals(3, records.size());
        assertNull(Trailer.decode(records.get(0)));
        assertEquals(
                "{\"format\":1,\"version\":2,\"id\":\"y\",\"parent\":\"x\",\"changes\":0,\"last\":true,\"pieces\":[],"
                        + "\"lineage\":[[1,\"x\"," + base + "," + (base + 1) + "]]}",
                new String(records.get(2).record().value(), StandardCharsets.UTF_8));
        Trailer second = Trailer.decode(records.get(2));
        assertEquals(new Trailer(2, "y", 0, true, List.of(), List.of(new Ancestor(1, "x", base, base + 1))), second);
        Numbered other = new Numbered(7, 0, LogRecord.of(null, utf8("{\"format\":2}")));
        assertTrue(assertThrows(IOException.class, () -> Trailer.decode(other)).getMessage().contains("format 2"));
    }

    @Test
    void theKindsOfChangesComeBack() throws IOException {
        Changelog changelog = open();
        Draft draft = changelog.draft(1, "x");
        byte[] key = utf8("key");
        draft.add(Change.put(key, new byte[0]));
        draft.add(Change.delete(key));
        draft.add(Change.merge(key, utf8("m")));
        draft.add(Change.deleteRange(key, utf8("z")));
        Arrays.fill(key, (byte) 0);
        List<Piece> place = draft.commit(List.of());
        ChangelogReader reader = new ChangelogReader(open(), place, 1);
        List<String> kinds = new ArrayList<>();
        while (reader.hasNext()) {
            var change = reader.next();
            kinds.add(change._1() + " " + new String(change._2(), StandardCharsets.UTF_8) + " "
                    + (change._3() == null ? "-" : change._3().length));
        }
        assertEquals(
                List.of("put_record key 0", "delete_record key -", "merge_record key 1", "delete_range_record key 1"), kinds);
    }

    @Test
    void aLargeVersionGoesInPiecesAndCountsWithTheLast() throws IOException {
        Changelog changelog = open();
        Draft draft = changelog.draft(1, "x");
        for (String text : List.of("a", "b", "c", "d", "e")) {
            draft.add(change(text));
        }
        assertEquals(base + 6, logs.end(at), "two pieces of two changes are there");
        assertEquals(Optional.empty(), open().find(new Name(1, "x")));
        // Another attempt writes between its pieces.
        write(open(), new Name(1, "other"), List.of(), "q", "r", "s");
        List<Piece> place = draft.commit(List.of());
        assertEquals(List.of(piece(0, 2), piece(3, 5), piece(11, 12)), place);
        for (Changelog each : List.of(changelog, open())) {
            assertEquals(Optional.of(List.of("a", "b", "c", "d", "e")), read(each, new Name(1, "x")));
            assertEquals(Optional.of(List.of("q", "r", "s")), read(each, new Name(1, "other")));
        }
    }

    @Test
    void aPieceIsFullExactlyWhenTheNextChangeDoesNotFit() throws IOException {
        int two = 2 * Change.bytes(change("a"));
        Changelog changelog = new Changelog(logs, at, 100, two);
        assertEquals(1, write(changelog, new Name(1, "x"), List.of(), "a", "b").size());
        assertEquals(2, write(changelog, new Name(2, "x"), List.of(), "a", "b", "c").size());
        assertEquals(3, write(changelog, new Name(3, "x"), List.of(), "a", "b", "c", "d", "e").size());
        Changelog narrow = new Changelog(logs, at, 100, 10);
        assertEquals(1, write(narrow, new Name(4, "x"), List.of(), "a").size(), "one change always fits");
    }

    @Test
    void whatDiedBeforeItsLastPieceNeverCounts() throws IOException {
        Changelog changelog = open();
        Draft dead = changelog.draft(2, "dead");
        for (String text : List.of("a", "b", "c", "d", "e")) {
            dead.add(change(text));
        }
        write(changelog, new Name(2, "x"), List.of(), "lives");
        assertEquals(Optional.empty(), read(open(), new Name(2, "dead")));
        assertEquals(Optional.of(List.of("lives")), read(open(), new Name(2, "x")));
        assertEquals(2, open().newestVersion());
    }

    @Test
    void ofSeveralAttemptsTheOneIsReadThatWasAskedFor() throws IOException {
        Changelog changelog = open();
        write(changelog, new Name(1, "one"), List.of(), "base");
        write(changelog, new Name(2, "zombie"), List.of(new Name(1, "one")), "zombie");
        write(changelog, new Name(2, "real"), List.of(new Name(1, "one")), "real");
        write(changelog, new Name(2, "late"), List.of(new Name(1, "one")), "late");
        write(changelog, new Name(3, "next"), List.of(new Name(1, "one"), new Name(2, "real")), "next");
        Changelog elsewhere = open();
        assertEquals(Optional.of(List.of("real")), read(elsewhere, new Name(2, "real")));
        assertEquals(Optional.of(List.of("zombie")), read(elsewhere, new Name(2, "zombie")));
        assertEquals(List.of("1one", "2real"), lineage(elsewhere, new Name(3, "next")));
        assertEquals(Optional.empty(), elsewhere.find(new Name(3, "real")), "the id alone is no name");
        assertEquals(Optional.of(List.of("base")), read(elsewhere, new Name(1, "one")));
        assertEquals(3, elsewhere.newestVersion());
    }

    @Test
    void placesOfAncestorsAreTakenFromTheTrailer() throws IOException {
        Changelog changelog = open();
        write(changelog, new Name(1, "a"), List.of(), "1", "2", "3", "4", "5");
        write(changelog, new Name(2, "b"), List.of(new Name(1, "a")), "6");
        write(changelog, new Name(3, "c"), List.of(new Name(1, "a"), new Name(2, "b")), "7");
        Trailer last = changelog.trailer(changelog.find(new Name(3, "c")).orElseThrow());
        assertEquals(List.of(new Ancestor(1, "a", -1, -1), new Ancestor(2, "b", base + 8, base + 9)), last.lineage());
        Changelog elsewhere = open();
        elsewhere.find(new Name(3, "c")).orElseThrow();
        assertEquals(Optional.of(List.of("6")), read(elsewhere, new Name(2, "b")));
        assertEquals(Optional.of(List.of("1", "2", "3", "4", "5")), read(elsewhere, new Name(1, "a")));
    }

    @Test
    void aPlaceThatHoldsSomethingElseIsAnError() throws IOException {
        Changelog changelog = open();
        List<Piece> place = write(changelog, new Name(1, "a"), List.of(), "1");
        assertThrows(IOException.class, () -> read(open(), place, 2));
        assertThrows(IOException.class, () -> read(open(), List.of(piece(0, 0)), 1));
        assertThrows(QuorumUnavailableException.class, () -> read(open(), List.of(piece(2, 3)), 3), "nobody has it yet");
    }

    @Test
    void trimmingEndsBeforeTheFirstBatchThatIsKept() throws IOException {
        Changelog changelog = open();
        for (long version = 1; version <= 6; version++) {
            write(changelog, new Name(version, "x"), List.of(), "v" + version);
        }
        for (Changelog each : List.of(changelog, open())) {
            each.trim(3);
            assertEquals(4, start(), "versions 1 and 2 had two records each");
            assertEquals(Optional.empty(), open().find(new Name(2, "x")));
            assertEquals(Optional.of(List.of("v3")), read(open(), new Name(3, "x")));
        }
        changelog.trim(2);
        assertEquals(4, start());
        open().trim(7);
        assertEquals(12, start(), "all is old");
        assertEquals(base + 12, logs.end(at));
    }

    @Test
    void trimmingGoesNoFurtherThanABatchThatIsKept() throws IOException {
        Changelog changelog = open();
        write(changelog, new Name(1, "x"), List.of(), "v1");
        Draft late = changelog.draft(9, "late");
        for (String text : List.of("a", "b", "c")) {
            late.add(change(text));
        }
        write(changelog, new Name(2, "x"), List.of(), "v2");
        late.commit(List.of());
        for (Changelog each : List.of(changelog, open())) {
            each.trim(5);
            assertEquals(2, start(), "a piece of version 9 lies behind version 1");
            assertEquals(Optional.of(List.of("a", "b", "c")), read(open(), new Name(9, "late")));
        }
    }

    @Test
    void whatWasTrimmedWhileItWasReadIsMissing() throws IOException {
        Changelog changelog = open();
        List<Piece> place = write(changelog, new Name(1, "x"), List.of(), "v1");
        write(changelog, new Name(2, "x"), List.of(), "v2");
        Changelog reader = open();
        open().trim(2);
        assertThrows(FileNotFoundException.class, () -> read(reader, place, 1));
    }

    // --- reading ahead -----------------------------------------------------------------------------------------------

    /** What a load of the newest version asks for itself, behind a look ahead. */
    private List<Asked> ahead(Consumer<Changelog> load) throws IOException {
        WatchedLogs watched = new WatchedLogs(logs);
        Changelog changelog = lookedAhead(watched);
        watched.forget();
        load.accept(changelog);
        return watched.asked().stream().filter(Asked::isHere).toList();
    }

    private static List<Long> offsets(List<Asked> asked) {
        return asked.stream().map(Asked::offset).toList();
    }

    private static void load(Changelog changelog, Name newest, Map<Name, List<String>> replayed) {
        try {
            lineage(changelog, newest);
            for (Map.Entry<Name, List<String>> each : replayed.entrySet()) {
                assertEquals(Optional.of(each.getValue()), read(changelog, each.getKey()));
            }
        } catch (IOException error) {
            throw new AssertionError(error);
        }
    }

    @Test
    void behindALookAndAReadAheadALoadAsksForNothing() throws IOException {
        Changelog changelog = open();
        List<Name> names = new ArrayList<>();
        for (long version = 1; version <= 5; version++) {
            Name name = new Name(version, "id" + version);
            write(changelog, name, List.copyOf(names), "a" + version, "b" + version);
            names.add(name);
        }
        Map<Name, List<String>> replayed = new LinkedHashMap<>();
        for (Name name : names.subList(1, 5)) {
            replayed.put(name, List.of("a" + name.version(), "b" + name.version()));
        }
        assertEquals(List.of(), ahead(loaded -> load(loaded, names.get(4), replayed)));
        // The first version of the lineage is in the snapshot. It is read where that is asked for.
        Map<Name, List<String>> first = Map.of(names.get(0), List.of("a1", "b1"));
        assertEquals(List.of(base), offsets(ahead(loaded -> load(loaded, names.get(4), first))));
    }

    @Test
    void aVersionInPiecesIsReadAheadFromItsFirstPiece() throws IOException {
        Changelog changelog = open();
        Name one = new Name(1, "x");
        write(changelog, one, List.of(), "0");
        Name two = new Name(2, "y");
        List<String> changes = List.of("a", "b", "c", "d", "e");
        write(changelog, two, List.of(one), changes.toArray(String[]::new));
        // What a task left unfinished lies behind it.
        Draft dead = changelog.draft(3, "dead");
        for (String text : changes) {
            dead.add(change(text));
        }
        assertEquals(List.of(), ahead(loaded -> load(loaded, two, Map.of(two, changes))));
    }

    @Test
    void aTrailerBehindTheChangesThatWereReadAheadTakesNothingFromThem() throws IOException {
        Changelog changelog = new Changelog(logs, at, 100);
        // They are more than one fetch takes, compressed ones too.
        List<Name> names = new ArrayList<>();
        for (long version = 1; version <= 15; version++) {
            Name name = new Name(version, "x");
            write(changelog, name, List.copyOf(names), letters(version));
            names.add(name);
        }
        Map<Name, List<String>> replayed = Map.of(names.get(1), List.of(letters(2)));
        assertEquals(List.of(base + 29), offsets(ahead(loaded -> load(loaded, names.get(14), replayed))));
    }

    /** Many of them that tell nothing of each other. */
    private static String letters(long seed) {
        return new Random(seed).ints(450_000, '!', '~' + 1)
                .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                .toString();
    }

    @Test
    void whatCouldNotBeReadAheadIsAskedForAgain() throws IOException {
        Name name = new Name(1, "x");
        write(open(), name, List.of(), "a");
        AtomicInteger refused = new AtomicInteger();
        Changelog changelog = lookedAhead(new WatchedLogs(logs, call -> {
            if (!call.isHere()) {
                refused.incrementAndGet();
                throw new IOException("nobody is there");
            }
        }));
        load(changelog, name, Map.of(name, List.of("a")));
        assertEquals(1, refused.get());
    }

    /** A changelog whose fetch ahead is never answered. */
    private final class HeldUp {
        private final CountDownLatch begun = new CountDownLatch(1);
        private final CountDownLatch ended = new CountDownLatch(1);
        private final Changelog changelog;

        private HeldUp() throws Exception {
            changelog = lookedAhead(new WatchedLogs(logs, this::hold));
            assertTrue(begun.await(30, TimeUnit.SECONDS));
        }

        private void hold(Asked call) throws InterruptedException {
            if (!call.isHere()) {
                begun.countDown();
                try {
                    new CountDownLatch(1).await();
                } finally {
                    ended.countDown();
                }
            }
        }
    }

    @Test
    @Timeout(60)
    void whoIsInterruptedWaitsNoLongerForAReadAhead() throws Exception {
        Name name = new Name(1, "x");
        write(open(), name, List.of(), "a");
        HeldUp held = new HeldUp();
        Thread.currentThread().interrupt();
        assertThrows(InterruptedIOException.class, () -> read(held.changelog, name));
        assertTrue(Thread.interrupted());
        assertTrue(held.ended.await(30, TimeUnit.SECONDS), "its fetch has ended, too");
    }

    @Test
    @Timeout(60)
    void aCommitEndsAReadAheadThatNobodyAskedFor() throws Exception {
        write(open(), new Name(1, "x"), List.of(), "a");
        HeldUp held = new HeldUp();
        Name two = new Name(2, "y");
        write(held.changelog, two, List.of(), "b");
        assertTrue(held.ended.await(30, TimeUnit.SECONDS));
        load(held.changelog, two, Map.of(two, List.of("b")));
    }

    @Test
    void aLookAheadThatFindsNothingReadsNothing() throws IOException {
        assertEquals(Optional.empty(), lookedAhead(new WatchedLogs(logs)).find(new Name(1, "x")));
    }

    @Test
    void placesOfFormat1AreFilesAndNothingIsReadAhead() throws IOException {
        List<Piece> place = write(open(), new Name(1, null), List.of(), "a");
        WatchedLogs watched = new WatchedLogs(logs);
        assertEquals(List.of("a"), read(lookedAhead(watched), place, 1));
        assertEquals(List.of(), watched.fetches().stream().filter(call -> !call.isHere()).toList());
    }

    private Changelog lookedAhead(WatchedLogs watched) throws IOException {
        Changelog changelog = new Changelog(watched.logs(), at, 100, PIECE_BYTES);
        changelog.lookAhead();
        return changelog;
    }
}
