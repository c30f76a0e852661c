package io.raftlake.spark.kit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;

/**
 * A node's HTTP front on loopback over a key-value space in memory. A script says what happens to the next writes, and the
 * next reads, in order; without a script they are served.
 */
public final class ScriptedNode implements AutoCloseable {
    /** What becomes of a request: whether it takes effect, and what the client hears; status 0 is a closed connection. */
    public record Step(boolean hasEffect, int status, Map<String, String> headers, String body) {
        public static Step lostBefore() {
            return new Step(false, 0, Map.of(), "");
        }

        public static Step lostAfter() {
            return new Step(true, 0, Map.of(), "");
        }

        public static Step served() {
            return new Step(true, -1, Map.of(), "");
        }

        /** An error of a node. */
        public static Step refused(int status, String... headers) {
            return told(false, status, "{\"error\":\"scripted " + status + "\"}", headers);
        }

        public static Step told(boolean hasEffect, int status, String body, String... headers) {
            Map<String, String> all = new HashMap<>(Map.of("X-Raftlake-Offset", "1"));
            for (int at = 0; at < headers.length; at += 2) {
                all.put(headers[at], headers[at + 1]);
            }
            return new Step(hasEffect, status, all, body);
        }
    }

    private static final ObjectMapper MAPPER = new ObjectMapper();

    public final MemoryKeySpace space;
    public final List<String> requests = new CopyOnWriteArrayList<>();
    private final ConcurrentLinkedQueue<Step> writes = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<Step> reads = new ConcurrentLinkedQueue<>();
    private final HttpServer server;

    public ScriptedNode(MemoryKeySpace space) throws IOException {
        this.space = space;
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        }));
        server.createContext("/", this::handle);
        server.start();
    }

    /** Makes this node the quorum of {@code raftlake://}, for clients that give up after some seconds. */
    public void addTo(Configuration conf) {
        conf.addResource("core-default.xml");
        conf.set("raftlake.http.servers", address());
        conf.set("raftlake.request.timeout.ms", "3000");
        conf.set("fs.raftlake.impl", RaftlakeFileSystem.class.getName());
    }

    public String address() {
        return "127.0.0.1:" + server.getAddress().getPort();
    }

    public String front() {
        return "http://" + address();
    }

    public void nextWrites(Step... steps) {
        writes.addAll(List.of(steps));
    }

    public void nextReads(Step... steps) {
        reads.addAll(List.of(steps));
    }

    @Override
    public void close() {
        server.stop(0);
    }

    private void handle(HttpExchange exchange) throws IOException {
        String target = exchange.getRequestURI().getRawPath();
        requests.add(exchange.getRequestMethod() + " " + target);
        byte[] body = exchange.getRequestBody().readAllBytes();
        Step step = (exchange.getRequestMethod().equals("GET") ? reads : writes).poll();
        Step answer = step == null || step.hasEffect() ? serve(exchange, target, body) : step;
        if (step != null && step.status() == 0) {
            exchange.close();
            return;
        }
        if (step != null && step.status() > 0) {
            answer = step;
        }
        answer.headers().forEach(exchange.getResponseHeaders()::set);
        byte[] told = answer.body().getBytes(StandardCharsets.ISO_8859_1);
        exchange.sendResponseHeaders(answer.status(), told.length == 0 ? -1 : told.length);
        exchange.getResponseBody().write(told);
        exchange.close();
    }

    private Step serve(HttpExchange exchange, String target, byte[] body) throws IOException {
        if (target.equals("/v1/txn")) {
            return commit(MAPPER.readTree(body));
        }
        if (target.equals("/v1/kv")) {
            return list(exchange.getRequestURI().getRawQuery());
        }
        String key = plain(target.substring("/v1/kv/".length()));
        Optional<Entry> entry = space.get(key);
        if (entry.isEmpty()) {
            return Step.refused(404);
        }
        String value = new String(entry.get().value(), StandardCharsets.ISO_8859_1);
        return Step.told(true, 200, value, "ETag", "\"" + entry.get().version() + "\"");
    }

    private Step list(String query) {
        Map<String, String> given = new HashMap<>();
        for (String part : query.split("&")) {
            given.put(part.substring(0, part.indexOf('=')), plain(part.substring(part.indexOf('=') + 1)));
        }
        Page page = space.list(new ListRequest(given.get("prefix"), given.get("delimiter"), given.get("after"),
                Integer.parseInt(given.get("limit")), "true".equals(given.get("values"))));
        ObjectNode told = MAPPER.createObjectNode();
        ArrayNode rows = told.putArray("entries");
        for (Entry entry : page.entries()) {
            ObjectNode row = rows.addObject().put("key", entry.key()).put("version", entry.version());
            if (entry.value() != null) {
                row.put("value", entry.value());
            }
        }
        page.prefixes().forEach(told.putArray("prefixes")::add);
        told.put("more", page.more());
        return Step.told(true, 200, told.toString(), "X-Raftlake-Offset", Long.toString(page.version() + 1));
    }

    private Step commit(JsonNode asked) throws IOException {
        Txn txn = new Txn();
        for (JsonNode compare : asked.path("compare")) {
            if (compare.has("prefix")) {
                txn.comparePrefix(compare.path("prefix").asText(), compare.path("newest").asLong());
            } else {
                txn.compare(compare.path("key").asText(), compare.path("version").asLong());
            }
        }
        for (JsonNode op : asked.path("ops")) {
            if (op.has("put")) {
                txn.put(op.path("put").path("key").asText(), op.path("put").path("value").binaryValue());
            } else if (op.has("end_txn")) {
                JsonNode end = op.path("end_txn");
                txn.endTxn(end.path("producer_id").asLong(), (short) end.path("epoch").asInt(), end.path("commit").asBoolean());
            } else if (op.path("delete").has("prefix")) {
                txn.deletePrefix(op.path("delete").path("prefix").asText());
            } else {
                txn.delete(op.path("delete").path("key").asText());
            }
        }
        try {
            return told(space.commit(txn, at -> false), txn);
        } catch (RefusedException refused) {
            return Step.told(false, 400, MAPPER.createObjectNode().put("error", refused.getMessage()).toString());
        }
    }

    private static Step told(TxnResult result, Txn txn) {
        if (result.succeeded()) {
            return Step.told(true, 200, "{\"succeeded\":true,\"version\":" + result.version() + "}");
        }
        ObjectNode told = MAPPER.createObjectNode().put("error", "condition failed").put("succeeded", false);
        ArrayNode failed = told.putArray("failed");
        List<String> prefixes = new ArrayList<>();
        txn.compares().forEach(compare -> {
            if (compare instanceof Txn.Compare.Prefix range) {
                prefixes.add(range.prefix());
            }
        });
        for (String name : result.inTheWay()) {
            failed.addObject().put(prefixes.contains(name) ? "prefix" : "key", name);
        }
        ArrayNode refused = told.putArray("refused");
        result.refused().forEach((producer, reason) -> refused.addObject().put("producer_id", producer).put("reason", reason));
        return Step.told(true, 412, told.toString());
    }

    private static String plain(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }
}
