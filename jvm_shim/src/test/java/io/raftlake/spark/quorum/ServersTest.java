package io.raftlake.spark.quorum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class ServersTest {
    @Test
    void aListOfAddresses() {
        assertEquals(List.of("http://a:1", "https://b:2", "http://[::1]:3"), Servers.parse("a:1, https://b:2,http://[::1]:3"));
    }

    @Test
    void whatIsMissingOrNoAddressIsNamed() {
        String missing = assertThrows(IllegalArgumentException.class, () -> Servers.parse(null)).getMessage();
        assertTrue(missing.contains("raftlake.http.servers") && missing.contains("configure("), missing);
        for (String wrong : List.of("a", "a:", ":1", "a:1,", "a:x", "a b:1", "a:1/x")) {
            String told = assertThrows(IllegalArgumentException.class, () -> Servers.parse(wrong)).getMessage();
            assertTrue(told.contains("raftlake.http.servers=" + wrong), told);
        }
    }

    @Test
    void keysAreOrderedByCodePoint() {
        assertTrue(Keys.ORDER.compare("\uFFFD", "\uD83D\uDE00") < 0);
        assertTrue(Keys.ORDER.compare("a", "b") < 0);
    }
}
