package io.raftlake.hooks;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.conf.Configuration;

/**
 * A place where a test may want a process to wait: tests/kits/sparkcluster.py says how. Which stop is wanted stands in the file
 * {@code stop-at} of the directory {@code raftlake.test.hooks}. Who comes there first renames the file to {@code reached}, and
 * waits until that is gone. Nobody waits where the setting is not made.
 */
final class Stop {
    private static final String SETTING = "raftlake.test.hooks";
    private static final long POLL_MS = 20;

    private Stop() {}

    static void reach(Configuration conf, String stop) throws IOException {
        String hooks = conf.get(SETTING);
        if (hooks == null) {
            return;
        }
        Path reached = Path.of(hooks, "reached");
        try {
            Path wanted = Path.of(hooks, "stop-at");
            if (!Files.readString(wanted, StandardCharsets.UTF_8).equals(stop)) {
                return;
            }
            Files.move(wanted, reached, StandardCopyOption.ATOMIC_MOVE);
        } catch (NoSuchFileException none) {
            return;
        }
        while (Files.exists(reached)) {
            try {
                Thread.sleep(POLL_MS);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted at " + stop, ended);
            }
        }
    }
}
