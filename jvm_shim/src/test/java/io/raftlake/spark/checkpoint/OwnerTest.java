package io.raftlake.spark.checkpoint;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.raftlake.spark.fs.Location;
import io.raftlake.spark.quorum.Keys;
import java.io.IOException;
import java.io.InputStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The value of an owner key, as commands in Python write it too. */
@Tag("memory")
class OwnerTest {
    @Test
    void theBytesOfAnOwner() throws IOException {
        JsonNode golden;
        try (InputStream in = Location.class.getResourceAsStream("golden.json")) {
            golden = new ObjectMapper().readTree(in).get("owner");
        }
        byte[] value = Keys.utf8(golden.get("value").textValue());
        Owner owner = Owner.decode(value);
        assertEquals(golden.get("run").textValue(), owner.run());
        assertEquals(golden.get("host").textValue(), owner.host());
        assertEquals(golden.get("since_ms").longValue(), owner.sinceMs());
        assertArrayEquals(value, owner.encode());
    }
}
