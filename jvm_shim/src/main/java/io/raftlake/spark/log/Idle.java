package io.raftlake.spark.log;

import java.io.Closeable;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;

/** Connections of one kind that nobody uses at the moment: on none of them a request is on its way. Thread-safe. */
final class Idle<C extends Idle.Kept> {
    /** A connection to a node, whose channel does not block. */
    interface Kept extends Closeable {
        InetSocketAddress address();

        SocketChannel channel();

        /** When the last answer was there, by {@link System#nanoTime}. */
        long usedAtNs();

        @Override
        void close();
    }

    /** To one node. */
    static final int COUNT_MAX = 8;

    /** Nodes close what was silent for ten minutes. */
    private static final long AGE_NS_MAX = 300_000_000_000L;

    private final Map<InetSocketAddress, Deque<C>> byNode = new HashMap<>();

    /** The one that was used last, which is the caller's now; null where none is of use. */
    C take(InetSocketAddress address) {
        while (true) {
            C kept = pop(address);
            if (kept == null || (System.nanoTime() - kept.usedAtNs() < AGE_NS_MAX && isQuiet(kept.channel()))) {
                return kept;
            }
            kept.close();
        }
    }

    private synchronized C pop(InetSocketAddress address) {
        Deque<C> there = byNode.get(address);
        return there == null ? null : there.pollLast();
    }

    /** Whether nothing came and nobody closed it while nobody waited for an answer. */
    private static boolean isQuiet(SocketChannel channel) {
        try {
            return channel.isOpen() && channel.read(ByteBuffer.allocate(1)) == 0;
        } catch (IOException broken) {
            return false;
        }
    }

    /** Back from a caller that has had all of its answers. */
    void give(C connection) {
        C tooMany;
        synchronized (this) {
            Deque<C> there = byNode.computeIfAbsent(connection.address(), absent -> new ArrayDeque<>());
            there.addLast(connection);
            tooMany = there.size() > COUNT_MAX ? there.pollFirst() : null;
        }
        if (tooMany != null) {
            tooMany.close();
        }
    }
}
