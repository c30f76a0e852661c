package io.raftlake.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class VersionsTest {
    @Test
    void theBuildWroteBothVersions() {
        assertTrue(Versions.raftlake().matches("[0-9]+\\.[0-9]+\\.[0-9]+.*"), Versions.raftlake());
        assertEquals(org.apache.spark.package$.MODULE$.SPARK_VERSION(), Versions.spark());
    }

    @Test
    void theSparkThatItWasBuiltForIsTaken() {
        Versions.requireSpark();
        Versions.requireSpark("4.2.9");
        Versions.requireSpark(null);
    }

    @Test
    void anotherSparkIsRefusedWithBothVersions() {
        for (String other : new String[] {"4.1.0", "4.20.0", "5.2.0"}) {
            String told = assertThrows(IllegalStateException.class, () -> Versions.requireSpark(other)).getMessage();
            assertTrue(told.contains(other) && told.contains("4.2") && told.contains(Versions.raftlake()), told);
        }
    }
}
