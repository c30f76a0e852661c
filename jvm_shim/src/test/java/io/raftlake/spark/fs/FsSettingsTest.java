package io.raftlake.spark.fs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class FsSettingsTest {
    private static Configuration conf(String name, String value) {
        Configuration conf = new Configuration(false);
        conf.set("raftlake.http.servers", "h:1");
        conf.set(name, value);
        return conf;
    }

    @Test
    void defaults() {
        FsSettings settings = FsSettings.of(conf("x", "y"));
        assertEquals(65536, settings.inlineBytes());
        assertEquals(60_000, settings.timeoutMs());
        assertEquals(86_400_000, settings.orphanAgeMs());
        assertEquals(0, settings.standbyBytes());
        assertNull(settings.baseUri());
    }

    @Test
    void whatIsNoNumberInRangeIsNamed() {
        for (String[] wrong : new String[][] {
            {FsSettings.INLINE_BYTES, "1048576"}, {FsSettings.INLINE_BYTES, "-1"}, {FsSettings.TIMEOUT, "0"},
            {FsSettings.TIMEOUT, "10s"}, {FsSettings.ORPHAN_AGE, "x"}, {FsSettings.STANDBY_BYTES, "10g"},
            {FsSettings.STANDBY_BYTES, "-1"}
        }) {
            String told = assertThrows(IllegalArgumentException.class, () -> FsSettings.of(conf(wrong[0], wrong[1])))
                    .getMessage();
            assertTrue(told.startsWith(wrong[0] + "=" + wrong[1] + ": "), told);
        }
    }
}
