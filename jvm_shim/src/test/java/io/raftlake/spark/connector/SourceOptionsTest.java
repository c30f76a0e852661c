package io.raftlake.spark.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.fs.LogBlobStore;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Refusals are compared with those of the connector in Python by tests/connector_contract. */
@Tag("memory")
class SourceOptionsTest {
    private static Map<String, String> raw(String... pairs) {
        Map<String, String> raw = new HashMap<>(Map.of("kafka.bootstrap.servers", "h:1", "subscribe", "t"));
        for (int index = 0; index < pairs.length; index += 2) {
            raw.put(pairs[index], pairs[index + 1]);
        }
        return raw;
    }

    private static String refusal(Map<String, String> raw) {
        return assertThrows(IllegalArgumentException.class, () -> SourceOptions.of(raw)).getMessage();
    }

    @Test
    void defaults() {
        SourceOptions options = SourceOptions.of(raw());
        assertEquals(new Selection.Subscribe(List.of("t")), options.selection());
        assertEquals(new Quorum.Patience(60_000, 3, 1_000, 0, "fetchOffset.numRetries"), options.quorum().patience());
        assertEquals(243_000, options.quorum().patience().totalMs());
        assertTrue(options.failOnDataLoss() && options.readsCommitted());
        assertFalse(options.includeHeaders() || options.isLinearizable() || options.startsAtLatestWithoutMatch());
        assertEquals(15 * 60_000, options.triggerDelayMsMax());
        assertNull(options.offsetsPerTriggerMax());
        assertEquals(TierOptions.Mode.AUTO, options.tier().mode());
        assertFalse(options.tier().isStrict());
        assertEquals(new Position.Latest(), options.forStream().starting());
        assertEquals(new Position.Earliest(), options.forBatch().starting());
        assertEquals(new Position.Latest(), options.forBatch().ending());
    }

    @Test
    void namesAreLookedUpWithoutRegardToCase() {
        SourceOptions options = SourceOptions.of(raw("FAILONDATALOSS", "False", "maxTriggerDelay", "2 m", "Tier.Uri",
                " s3://b/t ", "KAFKA.default.api.timeout.MS", "5", "tier.storage.aws_region", "eu", "kafka.group.id", "g"));
        assertFalse(options.failOnDataLoss());
        assertEquals(120_000, options.triggerDelayMsMax());
        assertEquals("s3://b/t", options.tier().uri());
        assertEquals(Map.of("aws_region", "eu"), options.tier().storage());
        assertEquals(5, options.quorum().patience().askMs());
        assertTrue(options.tier().isStrict());
    }

    @Test
    void valuesOfTheStoreAreShownNowhere() {
        SourceOptions options = SourceOptions.of(raw("tier.storage.secret", "hidden"));
        assertFalse(options.toString().contains("hidden"), options.toString());
    }

    @Test
    void unknownNamesAreRefused() {
        assertEquals("Unknown option 'subscribed' for raftlake; did you mean 'subscribe'?", refusal(raw("subscribed", "t")));
        assertEquals("Unknown option 'zzz' for raftlake", refusal(raw("zzz", "1")));
        assertEquals("Unknown option 'tier.storage.' for raftlake", refusal(raw("tier.storage.", "1")).split(";")[0]);
        assertEquals("Option 'kafka.sasl.mechanism' is not supported: raftlake's listeners speak PLAINTEXT only",
                refusal(raw("kafka.sasl.mechanism", "PLAIN")));
    }

    @Test
    void exactlyOneSelectionAndOnePosition() {
        assertEquals("One of the following options must be specified for raftlake source: subscribe, subscribePattern, assign",
                refusal(Map.of("kafka.bootstrap.servers", "h:1")));
        assertEquals("Only one of the following options can be specified for raftlake: subscribe, assign",
                refusal(raw("assign", "{\"t\":[0]}")));
        assertEquals("Only one of the following options can be specified for raftlake: startingTimestamp, startingOffsets",
                refusal(raw("startingOffsets", "latest", "startingTimestamp", "1")));
    }

    @Test
    void positionsOfBatchQueries() {
        for (String[] pair : new String[][] {
            {"startingOffsets", "{\"t\":{\"0\":5}}", "endingOffsets", "{\"t\":{\"0\":4}}"},
            {"startingOffsets", "{\"t\":{\"0\":5}}", "endingOffsets", "{\"t\":{\"1\":6}}"},
            {"startingOffsetsByTimestamp", "{\"t\":{\"0\":5}}", "endingTimestamp", "4"},
            {"endingOffsets", "{\"t\":{\"0\":-2}}"}}) {
            SourceOptions options = SourceOptions.of(raw(pair));
            assertThrows(IllegalArgumentException.class, options::forBatch, String.join(" ", pair));
        }
        assertEquals("ending offset not valid in streaming queries", assertThrows(IllegalArgumentException.class,
                SourceOptions.of(raw("endingOffsets", "latest"))::forStream).getMessage());
    }

    @Test
    void aSelectionCrossesToExecutors() throws Exception {
        Map<String, String> raw = raw("subscribePattern", "t-[0-9]+", "startingOffsets", "{\"t-1\":{\"0\":-1}}");
        raw.remove("subscribe");
        SourceOptions options = SourceOptions.of(raw);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        new ObjectOutputStream(bytes).writeObject(options);
        Object copy = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray())).readObject();
        assertEquals(options, copy);
        assertTrue(options.selection().names(new TopicPartition("t-12", 3)));
        assertFalse(options.selection().names(new TopicPartition("at-12", 3)));
        assertEquals("subscribePattern t-[0-9]+", options.selection().toString());
    }

    /** Else a stateful query of all topics reads the changes of its own state, and changes it again, for ever. */
    @Test
    void topicsThatRaftlakeKeepsForItselfMatchOnlyWhatBeginsAsTheyDo() {
        List<String> topics = List.of("orders", "__raftlake", "__others", "__raftlake-state-a", LogBlobStore.TOPIC);
        Map<String, List<String>> expected = Map.of(
                ".*", List.of("orders", "__raftlake", "__others"),
                "__.*", List.of("__raftlake", "__others"),
                "__raftlake-.*", List.of("__raftlake-state-a", LogBlobStore.TOPIC),
                "__raftlake.*", List.of("__raftlake"));
        expected.forEach((pattern, matches) -> {
            Map<String, String> raw = raw("subscribePattern", pattern);
            raw.remove("subscribe");
            Selection selection = SourceOptions.of(raw).selection();
            assertEquals(matches, topics.stream().filter(topic -> selection.names(new TopicPartition(topic, 0))).toList());
        });
        assertEquals("Topic 'b' does not exist; existing topics: a",
                Errors.missingTopics(List.of("b"), List.of("a", LogBlobStore.TOPIC)).getMessage());
    }

    @Test
    void closeNames() {
        assertEquals(List.of("orders", "order"), CloseNames.of("ordres", List.of("x", "order", "orders", "zzz"), 3));
        assertEquals(List.of("x-9", "x-2"), CloseNames.of("x-", List.of("x-1", "x-9", "x-2"), 2));
        assertEquals(List.of(), CloseNames.of("", List.of("x"), 3));
    }
}
