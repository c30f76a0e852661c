package io.raftlake.spark.connector.table;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.hadoop.ParquetReader;
import org.apache.parquet.hadoop.example.GroupReadSupport;

/**
 * The newest version of a Delta table, as its log tells: the newest checkpoint, and the commits behind it. Tables of reader
 * version 1, which raftlake writes; Delta's protocol, "Delta Log Entries" and "Checkpoints".
 */
final class DeltaLog {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Pattern COMMIT = Pattern.compile("([0-9]{20})\\.json");
    private static final Pattern CHECKPOINT = Pattern.compile("([0-9]{20})\\.checkpoint\\.parquet");

    private final FileSystem files;
    private final Path root;
    private final Configuration conf;

    /** What the log says of a file: its path relative to the table, or absolute, both as URIs. */
    record Added(String path, String partition, long size, JsonNode stats) {}

    private final Map<String, Added> added = new HashMap<>();
    private final Map<String, Long> transactions = new HashMap<>();
    private Map<String, String> properties = Map.of();
    private int readerVersion;

    private DeltaLog(Path root, Configuration conf) throws IOException {
        this.root = root;
        this.conf = conf;
        this.files = root.getFileSystem(conf);
    }

    /** IOException where there is no table, or one that is not understood. */
    static DeltaLog read(Path root, Configuration conf) throws IOException {
        DeltaLog log = new DeltaLog(root, conf);
        log.read();
        return log;
    }

    Map<String, Added> added() {
        return added;
    }

    /** The version of each {@code txn}, by its application. */
    Map<String, Long> transactions() {
        return transactions;
    }

    Map<String, String> properties() {
        return properties;
    }

    private void read() throws IOException {
        TreeMap<Long, Path> commits = new TreeMap<>();
        TreeMap<Long, Path> checkpoints = new TreeMap<>();
        for (FileStatus file : list()) {
            note(file.getPath(), COMMIT, commits);
            note(file.getPath(), CHECKPOINT, checkpoints);
        }
        long version = -1;
        if (!checkpoints.isEmpty()) {
            version = checkpoints.lastKey();
            readCheckpoint(checkpoints.lastEntry().getValue());
        }
        for (Map.Entry<Long, Path> commit : commits.tailMap(version + 1).entrySet()) {
            if (commit.getKey() != version + 1) {
                throw new IOException("the log of the table has no commit " + (version + 1));
            }
            version = commit.getKey();
            readCommit(commit.getValue());
        }
        if (version < 0) {
            throw new FileNotFoundException("there is no Delta table at " + root);
        }
        if (readerVersion > 1) {
            throw new IOException("the table needs readers of version " + readerVersion
                    + ", and raftlake reads version 1: another program has changed it: restore an earlier version");
        }
    }

    private FileStatus[] list() throws IOException {
        try {
            return files.listStatus(new Path(root, "_delta_log"));
        } catch (FileNotFoundException none) {
            throw new FileNotFoundException("there is no Delta table at " + root);
        }
    }

    private static void note(Path path, Pattern kind, Map<Long, Path> into) {
        Matcher name = kind.matcher(path.getName());
        if (name.matches()) {
            into.put(Long.parseLong(name.group(1)), path);
        }
    }

    // --- commits -----------------------------------------------------------------------------------------------------

    private void readCommit(Path path) throws IOException {
        List<JsonNode> actions = new ArrayList<>();
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(files.open(path), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (!line.isBlank()) {
                    actions.add(MAPPER.readTree(line));
                }
            }
        }
        actions.forEach(action -> added.remove(action.path("remove").path("path").asText()));
        for (JsonNode action : actions) {
            apply(action);
        }
    }

    private void apply(JsonNode action) throws IOException {
        JsonNode add = action.path("add");
        if (add.isObject()) {
            String stats = add.path("stats").asText("");
            added.put(add.path("path").asText(), new Added(add.path("path").asText(),
                    add.path("partitionValues").path("partition").asText(""), add.path("size").asLong(), stats(stats)));
        }
        JsonNode txn = action.path("txn");
        if (txn.isObject()) {
            transactions.put(txn.path("appId").asText(), txn.path("version").asLong());
        }
        if (action.path("metaData").isObject()) {
            Map<String, String> found = new HashMap<>();
            action.path("metaData").path("configuration").properties()
                    .forEach(property -> found.put(property.getKey(), property.getValue().asText()));
            properties = found;
        }
        if (action.path("protocol").isObject()) {
            readerVersion = action.path("protocol").path("minReaderVersion").asInt();
        }
    }

    private static JsonNode stats(String text) throws IOException {
        return text == null || text.isEmpty() ? MAPPER.createObjectNode() : MAPPER.readTree(text);
    }

    // --- checkpoints -------------------------------------------------------------------------------------------------

    private void readCheckpoint(Path path) throws IOException {
        try (ParquetReader<Group> rows = ParquetReader.builder(new GroupReadSupport(), path).withConf(conf).build()) {
            for (Group row = rows.read(); row != null; row = rows.read()) {
                readRow(row);
            }
        }
    }

    private void readRow(Group row) throws IOException {
        Group add = part(row, "add");
        if (add != null) {
            String path = add.getString("path", 0);
            String stats = has(add, "stats") ? add.getString("stats", 0) : "";
            added.put(path, new Added(path, pairs(part(add, "partitionValues")).getOrDefault("partition", ""),
                    add.getLong("size", 0), stats(stats)));
        }
        Group txn = part(row, "txn");
        if (txn != null) {
            transactions.put(txn.getString("appId", 0), txn.getLong("version", 0));
        }
        Group metaData = part(row, "metaData");
        if (metaData != null) {
            properties = pairs(part(metaData, "configuration"));
        }
        Group protocol = part(row, "protocol");
        if (protocol != null) {
            readerVersion = protocol.getInteger("minReaderVersion", 0);
        }
    }

    private static boolean has(Group group, String name) {
        return group.getType().containsField(name) && group.getFieldRepetitionCount(name) > 0;
    }

    private static Group part(Group group, String name) {
        return has(group, name) ? group.getGroup(name, 0) : null;
    }

    /** A map of Parquet: one repeated group of key and value. */
    private static Map<String, String> pairs(Group map) {
        Map<String, String> found = new HashMap<>();
        for (int index = 0; map != null && index < map.getFieldRepetitionCount(0); index++) {
            Group pair = map.getGroup(0, index);
            if (pair.getFieldRepetitionCount(1) > 0) {
                found.put(pair.getString(0, 0), pair.getString(1, 0));
            }
        }
        return found;
    }
}
