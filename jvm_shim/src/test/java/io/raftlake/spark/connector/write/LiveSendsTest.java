package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.log.Codec;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.ProducerId;
import io.raftlake.spark.log.Transactions;
import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Tag("memory")
class LiveSendsTest {
    private static Object field(Object of, String name, Object value) throws ReflectiveOperationException {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        if (value != null) {
            field.set(of, value);
        }
        return field.get(of);
    }

    /** A batch for which the JVM has no memory: the thread that sends ends by an Error. */
    @Test
    @Timeout(value = 20, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
    @SuppressWarnings("unchecked")
    void anErrorOfTheThreadThatSendsFailsTheTask() throws Exception {
        Transactions transactions = Transactions.of(List.of(InetSocketAddress.createUnresolved("127.0.0.1", 1)));
        RecordBuffer buffer = new RecordBuffer();
        field(buffer, "size", Integer.MAX_VALUE - 1_000);
        try (LiveSends sends = new LiveSends(transactions.producer("x", new ProducerId(1, (short) 0), Codec.NONE,
                new Transactions.Patience(900_000, 1_000, 1_000, 1_000)))) {
            synchronized (sends) {
                ((Map<Partition, RecordBuffer>) field(sends, "gathered", null)).put(new Partition("t", 0), buffer);
                sends.notifyAll();
            }
            IOException first = assertThrows(IOException.class, sends::flush);
            assertTrue(first.getCause() instanceof OutOfMemoryError, first.toString());
            assertSame(first, assertThrows(IOException.class, sends::flush), "the next call");
            assertTrue(sends.closeAndAwait(10_000));
        }
    }
}
