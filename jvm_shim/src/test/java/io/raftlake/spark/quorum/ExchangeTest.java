package io.raftlake.spark.quorum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** One request on a socket that answers what it is told to, byte for byte. */
@Tag("memory")
class ExchangeTest {
    private static final long LONG_MS = 60_000;
    private static final String SERVED = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nETag: \"7\"\r\n\r\nok";

    private final BlockingQueue<String> answers = new ArrayBlockingQueue<>(10);
    private final List<String> requests = new CopyOnWriteArrayList<>();
    private final List<Socket> sockets = new CopyOnWriteArrayList<>();
    private ServerSocket listener;

    @BeforeEach
    void start() throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        daemon(() -> {
            while (true) {
                Socket socket = listener.accept();
                sockets.add(socket);
                daemon(() -> serve(socket));
            }
        });
    }

    @AfterEach
    void stop() throws IOException {
        listener.close();
        for (Socket socket : sockets) {
            socket.close();
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void daemon(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception over) {
                // The test is over, or the client has closed it.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    /** An answer without bytes is none: the connection stays open. */
    private void serve(Socket socket) throws Exception {
        InputStream in = socket.getInputStream();
        byte[] bytes = new byte[65536];
        while (true) {
            int count = in.read(bytes);
            if (count < 0) {
                return;
            }
            requests.add(new String(bytes, 0, count, java.nio.charset.StandardCharsets.UTF_8));
            socket.getOutputStream().write(Keys.utf8(answers.take()));
        }
    }

    private String uri(String target) {
        return "http://127.0.0.1:" + listener.getLocalPort() + target;
    }

    private Answer ask(byte[] body, String answer) throws IOException {
        answers.add(answer);
        return Exchange.ask(uri("/k"), body, LONG_MS);
    }

    @Test
    void aRequestIsOnePieceAndItsTargetIsLeftAsItIs() throws IOException {
        answers.add(SERVED);
        Answer answer = Exchange.ask(uri("/v1/kv//fs/./%2F/../a%20b?x=%C3%A4"), Keys.utf8("{}"), LONG_MS);
        assertEquals(200, answer.status());
        assertEquals("\"7\"", answer.header("etag"));
        assertEquals("ok", new String(answer.body()));
        String request = requests.get(0);
        assertTrue(request.startsWith("POST /v1/kv//fs/./%2F/../a%20b?x=%C3%A4 HTTP/1.1\r\n"), request);
        assertTrue(request.endsWith("\r\n\r\n{}"), request);
        assertTrue(request.toLowerCase().contains("content-type: application/json"), request);
    }

    @Test
    void theNextRequestHasTheSameConnection() throws IOException {
        for (int number = 0; number < 3; number++) {
            ask(number == 1 ? null : Keys.utf8("{}"), SERVED);
        }
        assertEquals(1, sockets.size());
        assertTrue(requests.get(1).startsWith("GET /k "), requests.get(1));
    }

    @Test
    void aConnectionThatTheNodeHasClosedMeanwhileIsNotUsedAgain() throws IOException {
        ask(null, SERVED);
        // A close waits for the thread that reads from the socket.
        sockets.get(0).shutdownOutput();
        // What was used in this very millisecond is not looked at.
        long atMs = System.currentTimeMillis();
        while (System.currentTimeMillis() <= atMs + 1) {
            Thread.onSpinWait();
        }
        assertEquals(200, ask(Keys.utf8("{}"), SERVED).status());
        assertEquals(2, sockets.size());
    }

    @Test
    void anAnswerMayHaveNoLengthOrComeInPieces() throws IOException {
        Answer pieces = ask(null, "HTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
        assertEquals(Map.of(404, "abcd"), Map.of(pieces.status(), new String(pieces.body())));
        assertEquals(0, ask(null, "HTTP/1.1 204 None\r\nlocation: a\r\nlocation: b\r\n\r\n").body().length);
        assertEquals(1, sockets.size());
    }

    @Test
    void aRedirectAndARefusalAreAnswers() throws IOException {
        Answer moved = ask(Keys.utf8("{}"), "HTTP/1.1 307 Moved\r\nlocation: http://other:1/x\r\ncontent-length: 0\r\n\r\n");
        assertEquals(Map.of(307, "http://other:1/x"), Map.of(moved.status(), moved.header("location")));
        Answer busy = ask(Keys.utf8("{}"), "HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n");
        assertTrue(busy.status() == 503 && busy.hasRetryAfter());
        assertEquals(2, requests.size(), "nothing was sent twice");
    }

    @Test
    void whereNobodyListensNothingWasSent() throws IOException {
        // The thread of a listener that is closed may take one more connection. This port is taken, without a listener.
        try (Socket taken = new Socket()) {
            taken.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            String nobody = "http://127.0.0.1:" + taken.getLocalPort() + "/k";
            IOException refused = assertThrows(Exchange.Unreachable.class, () -> Exchange.ask(nobody, Keys.utf8("{}"), LONG_MS));
            assertEquals("Connection refused", refused.getMessage());
        }
        assertThrows(Exchange.Unreachable.class, () -> Exchange.ask("http://no-such-host.invalid:1/k", null, LONG_MS));
    }

    @Test
    void aNodeWithoutACertificateThatIsTrustedWasSentNothing() {
        answers.add("no TLS");
        assertThrows(Exchange.Unreachable.class,
                () -> Exchange.ask(uri("/k").replace("http:", "https:"), Keys.utf8("{}"), LONG_MS));
    }

    @Test
    void anAnswerThatDoesNotComeOrBreaksOffIsNoAnswer() throws IOException {
        for (String answer : List.of("", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")) {
            answers.add(answer);
            IOException lost = assertThrows(IOException.class, () -> Exchange.ask(uri("/k"), Keys.utf8("{}"), 300));
            assertFalse(lost instanceof Exchange.Unreachable, lost.toString());
        }
        assertEquals(200, ask(Keys.utf8("{}"), SERVED).status());
        assertEquals(3, sockets.size(), "an answer that comes late is not taken for another one's");
    }

    @Test
    void aThreadThatWaitsForAnAnswerCanBeInterrupted() throws Exception {
        CompletableFuture<Throwable> thrown = new CompletableFuture<>();
        Thread waiting = new Thread(() -> {
            try {
                Exchange.ask(uri("/k"), Keys.utf8("{}"), LONG_MS);
            } catch (IOException ended) {
                thrown.complete(Thread.currentThread().isInterrupted() ? ended : new AssertionError("the flag is gone"));
            }
        });
        waiting.start();
        while (requests.isEmpty()) {
            Thread.onSpinWait();
        }
        waiting.interrupt();
        Throwable ended = thrown.get(30, TimeUnit.SECONDS);
        assertInstanceOf(InterruptedIOException.class, ended);
        assertTrue(ended.getMessage().startsWith("interrupted in POST http://"), ended.getMessage());
    }
}
