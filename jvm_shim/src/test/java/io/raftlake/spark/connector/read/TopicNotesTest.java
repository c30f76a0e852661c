package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class TopicNotesTest {
    private static final String KEY = "/sources/q/t.1";
    private static final String OLD = "AAAAAAAAAAAAAAAAAAAAAQ";
    private static final String NEW = "AAAAAAAAAAAAAAAAAAAAAg";
    private static final String OLD_NOTE = "{\"topic_id\": \"00000000000000000000000000000001\"}";
    private static final String NEW_NOTE = "{\"topic_id\": \"00000000000000000000000000000002\"}";

    private final MemoryKeySpace keys = new MemoryKeySpace();

    private TopicNotes notes(boolean fail) {
        return new TopicNotes(keys, "q", fail);
    }

    private String note() throws IOException {
        return new String(keys.get(KEY).orElseThrow().value(), StandardCharsets.UTF_8);
    }

    private void put(String value) throws IOException {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        keys.commit(new Txn().put(KEY, bytes), Witness.put(KEY, bytes));
    }

    @Test
    void aTopicIsWrittenDownOnce() throws IOException {
        TopicNotes notes = notes(true);
        notes.note("t.1", OLD, false);
        assertEquals(OLD_NOTE, note());
        long reads = keys.reads(KEY);
        notes.note("t.1", OLD, false);
        assertEquals(reads, keys.reads(KEY));
        notes(true).note("t.1", OLD, false);
        assertEquals(OLD_NOTE, note());
    }

    @Test
    void anotherTopicOfTheNameIsLostData() throws IOException {
        put(OLD_NOTE);
        String told = assertThrows(DataLoss.class, () -> notes(true).note("t.1", NEW, false)).getMessage();
        assertTrue(told.startsWith("Topic t.1 was deleted and created again while the query was down: the offsets of its "
                + "checkpoint are those of the topic 00000000000000000000000000000001, and the topic is "
                + "00000000000000000000000000000002 now. Some data may have been lost"), told);
        assertEquals(OLD_NOTE, note());
        notes(false).note("t.1", NEW, false);
        assertEquals(NEW_NOTE, note());
    }

    @Test
    void aRunThatFoundItItselfGoesOn() throws IOException {
        put(OLD_NOTE);
        notes(true).note("t.1", NEW, true);
        assertEquals(NEW_NOTE, note());
        TopicNotes notes = notes(true);
        notes.note("t.1", NEW, false);
        notes.note("t.1", OLD, false);
        assertEquals(OLD_NOTE, note());
    }

    @Test
    void whatIsNoNoteIsReplaced() throws IOException {
        put("{\"topic_id\": 5}");
        notes(true).note("t.1", OLD, false);
        assertEquals(OLD_NOTE, note());
        put("no JSON");
        notes(true).note("t.1", NEW, false);
        assertEquals(NEW_NOTE, note());
    }
}
