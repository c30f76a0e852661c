package io.raftlake.spark.connector.write;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/**
 * The keys of the sink and the names of its transactions: the layout of {@code raftlake/client/sink_keys.py}, where it is
 * described. Times are ms since 1970.
 */
final class SinkKeys {
    static final String JOBS = "/sinks/jobs/";

    /** Transactions that one commit can end; beside them it puts the batch. */
    static final int TASKS_MAX = 1023;

    /** Of those, that one which also creates a file of a checkpoint can end. */
    static final int EPOCH_TASKS_MAX = 1000;

    private static final String APPS = "/sinks/apps/";
    private static final String TRANSACTIONS = "raftlake-sink.";

    /** The ids of so many owners are apart. */
    private static final int GENERATIONS = 4;

    /** Runs that are remembered as owners of before. */
    private static final int BEFORE_MAX = 32;

    /** What a task's transactional id ends with: perhaps a generation, then the partition and the attempt. */
    private static final Pattern TASK = Pattern.compile("[0-9]+(\\.[0-9]+){1,2}");

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final char[] HEX = "0123456789ABCDEF".toCharArray();

    /** The process that plans a query. */
    record Driver(String host, long pid) {
        static Driver current() {
            String host;
            try {
                host = InetAddress.getLocalHost().getHostName();
            } catch (UnknownHostException unknown) {
                host = "localhost";
            }
            return new Driver(host, ProcessHandle.current().pid());
        }
    }

    /** The run that may commit batches of an app; no run where nobody was an owner yet. {@code before}: the owners of before. */
    record Owner(String run, String query, String host, long pid, long sinceMs, long generation, List<String> before) {
        Owner followedBy(String nextRun, String nextQuery, Driver driver, long nowMs) {
            List<String> runs = new ArrayList<>(before);
            if (!run.isEmpty()) {
                runs.add(run);
            }
            return new Owner(nextRun, nextQuery, driver.host(), driver.pid(), nowMs, generation + 1,
                    List.copyOf(runs.subList(Math.max(0, runs.size() - BEFORE_MAX), runs.size())));
        }

        /** For texts of errors. */
        String describe() {
            Instant since = Instant.ofEpochMilli(sinceMs).truncatedTo(ChronoUnit.SECONDS);
            return "run " + run + " on host " + host + " (process " + pid + ", since " + since + ")";
        }

        byte[] encode() {
            ObjectNode facts = MAPPER.createObjectNode();
            facts.put("run", run).put("query", query).put("host", host).put("pid", pid).put("since_ms", sinceMs);
            facts.put("generation", generation);
            before.forEach(facts.putArray("before")::add);
            return bytes(facts);
        }

        /** What is not there is empty: whatever stands in the key is an owner, and not this run. */
        static Owner decode(byte[] value) {
            JsonNode facts = facts(value);
            List<String> before = new ArrayList<>();
            facts.path("before").forEach(each -> before.add(each.asText()));
            return new Owner(text(facts, "run"), text(facts, "query"), text(facts, "host"), number(facts, "pid", 0),
                    number(facts, "since_ms", 0), number(facts, "generation", 0), List.copyOf(before));
        }
    }

    /**
     * The newest batch of an app that is visible; -1 for none.
     *
     * @param topics rows by topic
     * @param isReplanned Spark has planned the batch anew since, with other rows
     */
    record Committed(
            long batch, String run, long rows, long tasks, long atMs, Map<String, Long> topics, boolean isReplanned) {
        Committed(long batch, String run, long rows, long tasks, long atMs, Map<String, Long> topics) {
            this(batch, run, rows, tasks, atMs, topics, false);
        }

        Committed replanned() {
            return new Committed(batch, run, rows, tasks, atMs, topics, true);
        }

        byte[] encode() {
            ObjectNode facts = MAPPER.createObjectNode();
            facts.put("batch", batch).put("run", run).put("rows", rows).put("tasks", tasks).put("at_ms", atMs);
            ObjectNode counts = facts.putObject("topics");
            topics.forEach(counts::put);
            if (isReplanned) {
                facts.put("is_replanned", true);
            }
            return bytes(facts);
        }

        static Committed decode(byte[] value) {
            JsonNode facts = facts(value);
            Map<String, Long> topics = new TreeMap<>();
            facts.path("topics").properties().forEach(each -> topics.put(each.getKey(), each.getValue().asLong()));
            return new Committed(number(facts, "batch", -1), text(facts, "run"), number(facts, "rows", 0),
                    number(facts, "tasks", 0), number(facts, "at_ms", 0), topics,
                    facts.path("is_replanned").booleanValue());
        }
    }

    /** A batch write, since it began or, when it is done, since it ended. */
    record Job(String job, String host, long pid, long sinceMs, boolean isDone) {
        byte[] encode() {
            ObjectNode facts = MAPPER.createObjectNode();
            facts.put("job", job).put("host", host).put("pid", pid).put("since_ms", sinceMs).put("is_done", isDone);
            return bytes(facts);
        }

        static Job decode(byte[] value) {
            JsonNode facts = facts(value);
            return new Job(text(facts, "job"), text(facts, "host"), number(facts, "pid", 0), number(facts, "since_ms", 0),
                    facts.path("is_done").booleanValue());
        }
    }

    private SinkKeys() {}

    // --- names -------------------------------------------------------------------------------------------------------

    /** What the keys of an app begin with. */
    static String appPrefix(String app) {
        return APPS + quote(app) + "/";
    }

    static String ownerKey(String app) {
        return appPrefix(app) + "owner";
    }

    static String batchKey(String app) {
        return appPrefix(app) + "batch";
    }

    static String jobKey(long number) {
        return JOBS + number;
    }

    /** What the transactional ids of an app begin with. */
    static String appTransactions(String app) {
        return TRANSACTIONS + "a." + quote(app) + ".";
    }

    static String appTransactionalId(String app, long generation, int partition, int attempt) {
        return appTransactions(app) + Math.floorMod(generation, GENERATIONS) + "." + partition + "." + attempt;
    }

    /** Whether an id that begins so is of this app or batch write: those of app {@code etl.daily} begin as those of etl do. */
    static boolean isTaskOf(String prefix, String transactionalId) {
        return transactionalId.startsWith(prefix) && TASK.matcher(transactionalId.substring(prefix.length())).matches();
    }

    static String jobTransactions(long number) {
        return TRANSACTIONS + "j." + number + ".";
    }

    static String jobTransactionalId(long number, int partition, int attempt) {
        return jobTransactions(number) + partition + "." + attempt;
    }

    /** Percent-encoded UTF-8; letters, digits and {@code _.-~} as they are, like Python's quote without safe characters. */
    static String quote(String text) {
        StringBuilder quoted = new StringBuilder(text.length() + 8);
        for (byte b : text.getBytes(StandardCharsets.UTF_8)) {
            boolean isPlain = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || "_.-~".indexOf(b) >= 0;
            if (isPlain) {
                quoted.append((char) b);
            } else {
                quoted.append('%').append(HEX[b >> 4 & 15]).append(HEX[b & 15]);
            }
        }
        return quoted.toString();
    }

    // --- JSON --------------------------------------------------------------------------------------------------------

    private static byte[] bytes(ObjectNode facts) {
        try {
            return MAPPER.writeValueAsBytes(facts);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    private static JsonNode facts(byte[] value) {
        try {
            JsonNode facts = value == null ? null : MAPPER.readTree(value);
            return facts != null && facts.isObject() ? facts : MAPPER.createObjectNode();
        } catch (IOException noJson) {
            return MAPPER.createObjectNode();
        }
    }

    private static String text(JsonNode facts, String name) {
        return facts.path(name).isTextual() ? facts.path(name).textValue() : "";
    }

    private static long number(JsonNode facts, String name, long otherwise) {
        return facts.path(name).isIntegralNumber() ? facts.path(name).longValue() : otherwise;
    }
}
