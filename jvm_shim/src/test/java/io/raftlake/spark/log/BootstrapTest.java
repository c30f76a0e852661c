package io.raftlake.spark.log;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class BootstrapTest {
    @Test
    void aListOfAddresses() {
        List<String> found = Bootstrap.parse("a:1, b.c:65535,[::1]:3").stream()
                .map(server -> server.getHostString() + " " + server.getPort())
                .toList();
        assertEquals(List.of("a 1", "b.c 65535", "::1 3"), found);
    }

    @Test
    void whatIsMissingOrNoAddressIsNamed() {
        String missing = assertThrows(IllegalArgumentException.class, () -> Bootstrap.parse(null)).getMessage();
        assertTrue(missing.contains("raftlake.bootstrap.servers") && missing.contains("configure("), missing);
        for (String wrong : List.of("a", "a:", ":1", "a:1,", "a:x", "a b:1", "a:1/x", "a:65536", "http://a:1")) {
            String told = assertThrows(IllegalArgumentException.class, () -> Bootstrap.parse(wrong)).getMessage();
            assertTrue(told.contains("raftlake.bootstrap.servers=" + wrong), told);
        }
    }
}
