package io.raftlake.spark.checkpoint;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Instant;

/**
 * Who owns a checkpoint: the value of its owner key, in JSON with {@code run}, {@code query}, {@code host}, {@code pid} and
 * {@code since_ms} (ms since 1970).
 */
record Owner(String run, String query, String host, long pid, long sinceMs) {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    /** A run of this process, from now on. */
    static Owner here(Run run) {
        return new Owner(run.id(), run.query(), hostName(), ProcessHandle.current().pid(), System.currentTimeMillis());
    }

    private static String hostName() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException unnamed) {
            return "localhost";
        }
    }

    byte[] encode() throws IOException {
        return MAPPER.writeValueAsBytes(MAPPER.createObjectNode()
                .put("run", run)
                .put("query", query)
                .put("host", host)
                .put("pid", pid)
                .put("since_ms", sinceMs));
    }

    /** Members that are missing are empty, or 0: whatever stands in the key is an owner, and not this run. */
    static Owner decode(byte[] value) {
        JsonNode facts;
        try {
            facts = MAPPER.readTree(value);
        } catch (IOException noJson) {
            facts = MAPPER.createObjectNode();
        }
        return new Owner(
                facts.path("run").asText(),
                facts.path("query").asText(),
                facts.path("host").asText(),
                facts.path("pid").asLong(),
                facts.path("since_ms").asLong());
    }

    /** For texts of errors. */
    String describe() {
        return "run " + run + " on host " + host + " (process " + pid + ", since " + Instant.ofEpochMilli(sinceMs) + ")";
    }
}
