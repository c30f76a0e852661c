package io.raftlake.spark.connector.read;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Which topic has a name now. Another id under the same name is another topic, whose offsets mean other records.
 *
 * <p>Topics reach the nodes one after another: a node that lags names the id of a topic that was deleted since. No order in
 * which ids were heard tells the older one. So the quorum is asked, where an id is news: its key
 * {@code /raftlake/topics/<name>} has the JSON {@code {"id": "<base64url>", ...}}, and reads of keys are linearizable.
 */
final class TopicIds {
    /** More topics than these are looked up in a list of all topics. */
    static final int SINGLE_MAX = 16;

    static final String PREFIX = "/raftlake/topics/";

    private static final ObjectMapper MAPPER = new ObjectMapper();

    /** Opens the keys of the quorum. */
    @FunctionalInterface
    interface Opening {
        KeySpace open() throws IOException;
    }

    private final Opening keys;
    private final Map<String, String> known = new HashMap<>();

    /** {@code keys}: null where the nodes are believed. */
    TopicIds(Opening keys) {
        this.keys = keys;
    }

    /** What a node says of topics. A topic without a key is being deleted: it keeps the id that is known. */
    void hear(Map<String, String> told) throws IOException {
        if (keys == null) {
            known.putAll(told);
            return;
        }
        List<String> news = told.keySet().stream().filter(topic -> !told.get(topic).equals(known.get(topic))).toList();
        if (!news.isEmpty()) {
            Map<String, String> now = now(news);
            told.forEach(known::putIfAbsent);
            known.putAll(now);
        }
    }

    /** Null for a topic that nobody has told of. */
    String get(String topic) {
        return known.get(topic);
    }

    /** The ids of those that exist. */
    private Map<String, String> now(List<String> topics) throws IOException {
        KeySpace opened = keys.open();
        List<Entry> entries = new ArrayList<>();
        if (topics.size() > SINGLE_MAX) {
            addAll(opened, entries);
        } else {
            for (String topic : topics) {
                opened.get(PREFIX + topic).ifPresent(entries::add);
            }
        }
        Map<String, String> found = new HashMap<>();
        for (Entry entry : entries) {
            String topic = entry.key().substring(PREFIX.length());
            if (topics.contains(topic)) {
                found.put(topic, MAPPER.readTree(entry.value()).path("id").textValue());
            }
        }
        return found;
    }

    private static void addAll(KeySpace opened, List<Entry> entries) throws IOException {
        ListRequest request = ListRequest.deep(PREFIX, true);
        Page page = opened.list(request);
        entries.addAll(page.entries());
        while (page.more()) {
            page = opened.list(request.after(page.last()));
            entries.addAll(page.entries());
        }
    }
}
