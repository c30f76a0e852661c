package io.raftlake.spark.quorum;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.ScriptedNode;
import io.raftlake.spark.kit.ScriptedNode.Step;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** What each answer of a node makes the client do. */
@Tag("memory")
class HttpKeySpaceTest {
    private static final byte[] VALUE = Keys.utf8("value");

    private final MemoryKeySpace space = new MemoryKeySpace();
    private ScriptedNode first;
    private ScriptedNode second;

    @BeforeEach
    void start() throws IOException {
        first = new ScriptedNode(space);
        second = new ScriptedNode(space);
    }

    @AfterEach
    void stop() {
        first.close();
        second.close();
    }

    private HttpKeySpace client(long timeoutMs) {
        return new HttpKeySpace(List.of(first.front(), second.front()), timeoutMs);
    }

    private static Txn creation(String key) {
        return new Txn().compare(key, KeySpace.ABSENT).put(key, VALUE);
    }

    private TxnResult create(HttpKeySpace client, String key) throws IOException {
        return client.commit(creation(key), Witness.put(key, VALUE));
    }

    @Test
    void writesAndReadsAnyKey() throws IOException {
        HttpKeySpace client = client(5000);
        for (String key : List.of("/fs/p/a b", "/fs/p/ä%2F+?#&=", "/fs/p/..", "/fs/p/\uD83D\uDE00")) {
            TxnResult created = create(client, key);
            Entry entry = client.get(key).orElseThrow();
            assertArrayEquals(VALUE, entry.value());
            assertEquals(created.version(), entry.version());
        }
        assertTrue(client.get("/fs/p/none").isEmpty());
    }

    /** What a node's Kafka listener answers to HTTP. Nothing is tried again, and no write is taken for possibly done. */
    @Test
    void aPortOfKafkasProtocolIsToldOfAtOnce() throws IOException {
        String body = "{\"error\":\"this port speaks Kafka's protocol (the setting listeners). HTTP is served at http.listener\"}";
        String answer = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: " + body.length()
                + "\r\nx-raftlake-offset: 0\r\nconnection: close\r\n\r\n" + body;
        try (ServerSocket listener = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            Thread thread = new Thread(() -> {
                try {
                    while (true) {
                        try (Socket socket = listener.accept()) {
                            socket.getInputStream().read(new byte[65536]);
                            socket.getOutputStream().write(Keys.utf8(answer));
                        }
                    }
                } catch (IOException closed) {
                    // The test is over.
                }
            });
            thread.setDaemon(true);
            thread.start();
            HttpKeySpace client = new HttpKeySpace(List.of("http://127.0.0.1:" + listener.getLocalPort()), 60_000);
            for (Executable asked : List.<Executable>of(() -> client.get("/k"), () -> client.commit(new Txn().put("/k", VALUE),
                    Witness.put("/k", VALUE)))) {
                RefusedException told = assertThrows(RefusedException.class, asked);
                assertTrue(told.getMessage().endsWith("answered 400: this port speaks Kafka's protocol (the setting listeners). HTTP "
                        + "is served at http.listener"), told.getMessage());
            }
        }
    }

    @Test
    void listsPagesAndDirectories() throws IOException {
        HttpKeySpace client = client(5000);
        for (String key : List.of("/d/a", "/d/b", "/d/b/x", "/d/b/y", "/d/c")) {
            create(client, key);
        }
        Page page = client.list(ListRequest.children("/d/", true).limit(3));
        assertEquals(List.of("/d/a", "/d/b"), page.entries().stream().map(Entry::key).toList());
        assertEquals(List.of("/d/b/"), page.prefixes());
        assertTrue(page.more());
        assertArrayEquals(VALUE, page.entries().get(0).value());
        Page rest = client.list(ListRequest.children("/d/", false).after(page.last()));
        assertEquals(List.of("/d/c"), rest.entries().stream().map(Entry::key).toList());
        assertEquals(List.of(), rest.prefixes());
        assertFalse(rest.more());
    }

    @Test
    void aRedirectIsFollowedWithTheBodyAndRemembered() throws IOException {
        HttpKeySpace client = client(5000);
        first.nextWrites(Step.refused(307, "Location", second.front() + "/v1/txn"));
        assertTrue(create(client, "/k").succeeded());
        assertArrayEquals(VALUE, space.get("/k").orElseThrow().value());
        create(client, "/k2");
        assertEquals(List.of("POST /v1/txn"), first.requests);
        assertEquals(2, second.requests.size());
    }

    @Test
    void aRefusalWithRetryAfterIsTriedAgain() throws IOException {
        first.nextWrites(Step.refused(503, "Retry-After", "1"));
        first.nextReads(Step.refused(503, "Retry-After", "1"));
        HttpKeySpace client = client(5000);
        assertTrue(create(client, "/k").succeeded());
        assertTrue(client.get("/k").isPresent());
    }

    @Test
    void anUnreachableServerIsPassedOver() throws IOException {
        first.close();
        HttpKeySpace client = client(5000);
        assertTrue(create(client, "/k").succeeded());
        assertTrue(client.get("/k").isPresent());
    }

    @Test
    void aCompareThatFailsNamesTheKey() throws IOException {
        HttpKeySpace client = client(5000);
        create(client, "/k/1");
        TxnResult refused = create(client, "/k/1");
        assertFalse(refused.succeeded());
        assertEquals(List.of("/k/1"), refused.inTheWay());
        Txn range = new Txn().comparePrefix("/k/", 0).put("/j", VALUE);
        assertEquals(List.of("/k/"), client.commit(range, Witness.put("/j", VALUE)).inTheWay());
    }

    @Test
    void endsOfTransactionsHappenWithTheKeysOrNotAtAll() throws IOException {
        HttpKeySpace client = client(5000);
        Txn ends = new Txn().endTxn(100, (short) 3, true).endTxn(101, (short) 0, false).put("/k", VALUE);
        assertTrue(client.commit(ends, Witness.put("/k", VALUE)).succeeded());
        assertEquals(List.of(new Txn.Op.EndTxn(100, (short) 3, true), new Txn.Op.EndTxn(101, (short) 0, false)), space.ends());
        space.refuse(100, "it is over");
        TxnResult refused = client.commit(new Txn().put("/j", VALUE).endTxn(100, (short) 3, true), Witness.put("/j", VALUE));
        assertFalse(refused.succeeded());
        assertEquals(Map.of(100L, "it is over"), refused.refused());
        assertEquals(List.of(), refused.inTheWay());
        assertTrue(client.get("/j").isEmpty());
    }

    @Test
    void aLostAnswerAfterTheEffectIsReadBack() throws IOException {
        HttpKeySpace client = client(5000);
        first.nextWrites(Step.lostAfter());
        assertTrue(create(client, "/k").succeeded());
        assertEquals(1, posts(), "a write that happened is not sent again");
    }

    @Test
    void aLostAnswerBeforeTheEffectIsSentAgain() throws IOException {
        HttpKeySpace client = client(5000);
        first.nextWrites(Step.lostBefore());
        assertTrue(create(client, "/k").succeeded());
        assertEquals(2, posts());
    }

    @Test
    void anUnknownOutcomeIsReadBack() throws IOException {
        HttpKeySpace client = client(5000);
        first.nextWrites(Step.told(true, 504, "{\"error\":\"unknown\"}"));
        assertTrue(create(client, "/k").succeeded());
        first.nextWrites(Step.told(false, 504, "{\"error\":\"unknown\"}"));
        assertTrue(create(client, "/k2").succeeded());
        assertTrue(space.get("/k2").isPresent());
    }

    /** A node that refuses a write says when to come again; without that the write may have been passed on. */
    @Test
    void aRefusalThatNamesNoTimeDecidesNothing() throws IOException {
        first.nextWrites(Step.told(true, 503, "{\"error\":\"leader unknown\"}"));
        Witness none = at -> false;
        assertThrows(UnknownOutcomeException.class, () -> client(5000).commit(new Txn().put("/k", VALUE), none));
        assertEquals(1, posts());
    }

    /** The first try takes effect only after the witness was read: the second one then fails on the first. */
    @Test
    void aLateEffectOfAnEarlierTryIsTaken() throws IOException {
        HttpKeySpace client = client(5000);
        first.nextWrites(Step.lostAfter());
        int[] looks = {0};
        Witness late = at -> ++looks[0] > 1 && Witness.put("/k", VALUE).holds(at);
        assertTrue(client.commit(creation("/k"), late).succeeded());
        assertEquals(2, posts());
    }

    @Test
    void theWriteOfAnotherIsNotTakenForOurs() throws IOException {
        HttpKeySpace client = client(5000);
        space.commit(new Txn().put("/k", Keys.utf8("other")), at -> false);
        first.nextWrites(Step.lostBefore());
        assertFalse(create(client, "/k").succeeded());
    }

    @Test
    void anAnswerThatIsNoNodesDecidesNothing() throws IOException {
        HttpKeySpace client = client(5000);
        first.nextWrites(new Step(true, 503, java.util.Map.of("Retry-After", "1"), "<html>bad gateway</html>"));
        assertTrue(create(client, "/k").succeeded());
        assertEquals(1, posts(), "the write behind a proxy's error was read back");
        first.nextReads(new Step(false, 404, java.util.Map.of(), "<html>not found</html>"));
        assertThrows(RefusedException.class, () -> client(5000).get("/k"));
    }

    @Test
    void aWriteWithoutConditionsIsNotSentTwice() {
        first.nextWrites(Step.lostBefore());
        UnknownOutcomeException unknown = assertThrows(UnknownOutcomeException.class,
                () -> client(5000).commit(new Txn().put("/k", VALUE), Witness.put("/k", VALUE)));
        assertTrue(unknown.getMessage().contains("'/k'"), unknown.getMessage());
        assertEquals(1, posts());
    }

    @Test
    void whatANodeRefusesForGoodIsSaidOnce() {
        first.nextWrites(Step.refused(413));
        RefusedException refused = assertThrows(RefusedException.class, () -> create(client(5000), "/k"));
        assertTrue(refused.getMessage().contains(first.address()), refused.getMessage());
        assertTrue(refused.getMessage().contains("scripted 413"), refused.getMessage());
        first.nextWrites(Step.refused(507));
        assertThrows(RefusedException.class, () -> create(client(5000), "/k"));
    }

    @Test
    void roomThatMayComeIsWaitedFor() throws IOException {
        first.nextWrites(Step.refused(507, "Retry-After", "1"));
        assertTrue(create(client(5000), "/k").succeeded());
    }

    @Test
    void theDeadlineEndsTheTriesAndTheErrorNamesServersAndSettings() {
        first.close();
        second.close();
        QuorumUnavailableException error =
                assertThrows(QuorumUnavailableException.class, () -> create(client(300), "/k"));
        for (String part : List.of(first.front(), second.front(), "raftlake.request.timeout.ms", "300 ms", Servers.SETTING)) {
            assertTrue(error.getMessage().contains(part), part + " in " + error.getMessage());
        }
    }

    @Test
    void twoNodesThatNameEachOtherAreLeftAtTheDeadline() {
        for (int i = 0; i < 1000; i++) {
            first.nextWrites(Step.refused(307, "Location", second.front() + "/v1/txn"));
            second.nextWrites(Step.refused(307, "Location", first.front() + "/v1/txn"));
        }
        assertThrows(QuorumUnavailableException.class, () -> create(client(500), "/k"));
        assertTrue(posts() < 60, posts() + " tries in half a second");
    }

    @Test
    void anInterruptedThreadStopsTrying() {
        Thread.currentThread().interrupt();
        assertThrows(InterruptedIOException.class, () -> create(client(5000), "/k"));
        assertTrue(Thread.interrupted(), "the flag is set again");
    }

    private long posts() {
        return first.requests.stream().filter("POST /v1/txn"::equals).count()
                + second.requests.stream().filter("POST /v1/txn"::equals).count();
    }
}
