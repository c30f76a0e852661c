package io.raftlake.spark.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("memory")
class OffsetJsonTest {
    @Test
    void offsetsAreSortedByTopicAndNumber() {
        SortedMap<TopicPartition, Long> offsets = OffsetJson.parse("{\"b\": {\"10\": 1, \"9\": 2}, \"a.x\": {\"0\": 23}}");
        assertEquals("{\"a.x\":{\"0\":23},\"b\":{\"9\":2,\"10\":1}}", OffsetJson.of(offsets));
        assertEquals(Map.of(new TopicPartition("b", 10), 1L, new TopicPartition("b", 9), 2L, new TopicPartition("a.x", 0), 23L),
                offsets);
        assertEquals("{}", OffsetJson.of(new TreeMap<>()));
        assertEquals(-2, OffsetJson.parse("{\"t\":{\"0\":-2}}").get(new TopicPartition("t", 0)));
        assertEquals(Long.MAX_VALUE, OffsetJson.parse("{\"t\":{\"0\":9223372036854775807}}").get(new TopicPartition("t", 0)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "[]", "null", "{", "{}}", "{\"t\":{\"0\":1}} x", "{\"t\":{\"0\":1,\"0\":2}}"})
    void whatIsNoObjectIsRefusedWithAnExample(String text) {
        String told = assertThrows(IllegalArgumentException.class, () -> OffsetJson.parse(text)).getMessage();
        assertTrue(told.startsWith("Expected e.g. {\"topicA\":{\"0\":23,\"1\":-1},\"topicB\":{\"0\":-2}}, got " + text), told);
    }

    @ParameterizedTest
    @ValueSource(strings = {"{\"t\":1}", "{\"t\":{\"x\":1}}", "{\"t\":{\"-1\":1}}", "{\"t\":{\"0\":\"1\"}}",
        "{\"t\":{\"0\":1.5}}", "{\"t\":{\"0\":-3}}", "{\"t\":{\"0\":true}}", "{\"t\":{\"0\":9223372036854775808}}"})
    void whatIsNoOffsetIsRefusedByItsTopic(String text) {
        String told = assertThrows(IllegalArgumentException.class, () -> OffsetJson.parse(text)).getMessage();
        assertTrue(told.contains("opic 't'"), told);
    }

    @Test
    void partitionsOfAnAssignment() {
        assertEquals(List.of(new TopicPartition("a", 1), new TopicPartition("b", 2), new TopicPartition("b", 4)),
                List.copyOf(OffsetJson.parsePartitions("{\"b\":[4,2,2],\"a\":[1]}")));
        for (String text : List.of("{\"a\":1}", "{\"a\":[-1]}", "{\"a\":[true]}", "{\"a\":[0.5]}", "[0]")) {
            assertThrows(IllegalArgumentException.class, () -> OffsetJson.parsePartitions(text), text);
        }
    }
}
