package io.raftlake.spark.connector.table;

import com.fasterxml.jackson.databind.JsonNode;
import io.raftlake.spark.connector.table.DeltaLog.Added;
import java.io.IOException;
import java.net.URI;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** One version of the Delta table of a topic: which offsets it shows, and in which files. */
public final class TopicTable {
    private static final String CLUSTER = "raftlake.clusterId";
    private static final String TOPIC_ID = "raftlake.topicId";

    private final String uri;
    private final DeltaLog log;
    private final Map<Integer, List<TableFile>> files = new HashMap<>();
    private final Map<Integer, IOException> untold = new HashMap<>();

    private TopicTable(String uri, DeltaLog log, Path root) throws IOException {
        this.uri = uri;
        this.log = log;
        for (Added each : log.added().values()) {
            int partition = Integer.parseInt(each.partition());
            try {
                files.computeIfAbsent(partition, absent -> new ArrayList<>()).add(file(each, partition, root));
            } catch (IOException error) {
                untold.put(partition, error);
            }
        }
        files.values().forEach(each -> each.sort(Comparator.comparingLong(TableFile::offsetMin)));
    }

    /**
     * The newest version of a table. IOException where it cannot be read, is none of raftlake's, or is that of another topic
     * than the one of this id, in base64.
     */
    public static TopicTable read(String uri, String topicId, Configuration conf) throws IOException {
        Path root = new Path(uri);
        DeltaLog log = DeltaLog.read(root, conf);
        String found = log.properties().get(TOPIC_ID);
        if (found == null || !log.properties().containsKey(CLUSTER)) {
            throw new IOException("the table at " + uri + " is none of raftlake's: it has no property " + TOPIC_ID);
        }
        if (!found.equals(topicId)) {
            throw new IOException("the table at " + uri + " has another topic id");
        }
        return new TopicTable(uri, log, root);
    }

    private static TableFile file(Added added, int partition, Path root) throws IOException {
        JsonNode min = added.stats().path("minValues");
        JsonNode max = added.stats().path("maxValues");
        if (!min.path("offset").isIntegralNumber() || !max.path("offset").isIntegralNumber()) {
            throw new IOException("the commit of " + added.path() + " does not tell its offsets");
        }
        URI path = URI.create(added.path());
        Path place = path.isAbsolute() ? new Path(path) : new Path(root, path.getPath());
        return new TableFile(place.toString(), added.size(), partition, min.path("offset").longValue(),
                max.path("offset").longValue(), us(min.path("timestamp")), us(max.path("timestamp")));
    }

    /** Null where a time is not told. */
    private static Long us(JsonNode time) {
        try {
            return time.isTextual()
                    ? ChronoUnit.MICROS.between(Instant.EPOCH, OffsetDateTime.parse(time.textValue()).toInstant()) : null;
        } catch (DateTimeException unknown) {
            return null;
        }
    }

    /**
     * What it shows of a partition; an empty span behind the last offset that was ever there where it shows nothing.
     * IOException where the files do not say that each offset is there once.
     */
    public Span span(int partition) throws IOException {
        if (untold.containsKey(partition)) {
            throw new IOException(uri + ": " + untold.get(partition).getMessage(), untold.get(partition));
        }
        List<TableFile> its = files.getOrDefault(partition, List.of());
        if (its.isEmpty()) {
            long end = end(partition);
            return new Span(end, end, List.of());
        }
        for (int index = 1; index < its.size(); index++) {
            long expected = its.get(index - 1).end();
            if (its.get(index).offsetMin() != expected) {
                String what = its.get(index).offsetMin() > expected ? "is missing" : "may be there twice";
                throw new IOException(uri + ": offset " + Math.min(expected, its.get(index).offsetMin()) + " " + what
                        + ": `raftlake tier verify` names what is wrong");
            }
        }
        return new Span(its.get(0).offsetMin(), its.get(its.size() - 1).end(), List.copyOf(its));
    }

    /** Behind the last offset that was ever shown of the newest incarnation, as its {@code txn} tells; 0 where nothing was. */
    private long end(int partition) {
        String lineage = log.properties().get(CLUSTER) + "/" + log.properties().get(TOPIC_ID) + "/" + partition + "/";
        int newest = -1;
        for (String app : log.transactions().keySet()) {
            String rest = app.startsWith(lineage) ? app.substring(lineage.length()).replaceFirst("/epoch$", "") : "";
            newest = rest.matches("[0-9]{1,9}") ? Math.max(newest, Integer.parseInt(rest)) : newest;
        }
        return log.transactions().getOrDefault(lineage + newest, -1L) + 1;
    }
}
