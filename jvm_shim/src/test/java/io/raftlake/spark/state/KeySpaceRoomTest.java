package io.raftlake.spark.state;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.kit.StateQuery;
import io.raftlake.spark.kit.StateQuery.Kind;
import io.raftlake.spark.kit.StateQuery.Store;
import io.raftlake.spark.kit.StateQuery.Version;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * How much of the key space the state of a query takes: less than 100 MB with 200 partitions and 100 retained batches. What one
 * partition takes is counted as the quota of a node counts, and multiplied. Its snapshots are as frequent as Spark's default
 * allows at all: maintenance comes after each batch.
 */
@Tag("memory")
class KeySpaceRoomTest {
    private static final int PARTITIONS = 200;
    private static final int RETAINED = 100;
    private static final long BYTES_MAX = 100_000_000;

    /** Beside name and value (docs/settings.md, kv.quota.bytes). */
    private static final int BYTES_OF_A_KEY = 128;

    @TempDir
    Path directory;

    @Test
    void theStateOfManyPartitionsIsSmall() throws IOException {
        StateQuery query = StateQuery.start(Kind.QUORUM, directory)
                .set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "10")
                .set("spark.sql.streaming.minBatchesToRetain", Integer.toString(RETAINED));
        // 10,000 keys in all, each of which changes in each batch.
        String[] words = IntStream.range(0, 10_000 / PARTITIONS).mapToObj(one -> "customer-" + one).toArray(String[]::new);
        Version last = Version.NONE;
        long most = 0;
        try (Store store = query.open()) {
            for (int batch = 1; batch <= RETAINED * 3 / 2; batch++) {
                last = store.put(last, batch, words);
                store.provider().doMaintenance();
                most = Math.max(most, bytes("/fs/" + query.root.toUri().getAuthority() + "/main/state/"));
            }
        }
        assertTrue(most * PARTITIONS < BYTES_MAX, most + " bytes a partition, " + most * PARTITIONS + " in all");
    }

    private static long bytes(String prefix) throws IOException {
        long bytes = 0;
        ListRequest request = ListRequest.deep(prefix, true);
        while (true) {
            Page page = Spaces.SPACE.list(request);
            for (Entry entry : page.entries()) {
                bytes += BYTES_OF_A_KEY + entry.key().getBytes(StandardCharsets.UTF_8).length + entry.value().length;
            }
            if (!page.more()) {
                return bytes;
            }
            request = request.after(page.last());
        }
    }
}
