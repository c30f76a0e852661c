package io.raftlake.spark.log;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;

/**
 * Connections to nodes that nobody uses at the moment. A call takes one for itself, so that no append waits behind a read that
 * waits for records.
 */
final class Connections {
    private static final int IDLE_MAX = 8;

    /** Nodes close what was silent for ten minutes. */
    private static final long IDLE_NS_MAX = 300_000_000_000L;

    private static final long CONNECT_MS_MAX = 3_000;

    private final Map<InetSocketAddress, Deque<Connection>> idle = new HashMap<>();

    /** The one that was used last, or a new one. {@link Lost} where the node cannot be reached. */
    Connection take(InetSocketAddress address, long timeoutMs) throws IOException {
        while (true) {
            Connection connection = pop(address);
            if (connection == null) {
                return Connection.open(address, Math.min(CONNECT_MS_MAX, timeoutMs));
            }
            if (System.nanoTime() - connection.usedAtNs() < IDLE_NS_MAX && connection.isQuiet()) {
                return connection;
            }
            connection.close();
        }
    }

    private synchronized Connection pop(InetSocketAddress address) {
        Deque<Connection> there = idle.get(address);
        return there == null ? null : there.pollLast();
    }

    /** Back from a call that had its answer. */
    void give(Connection connection) {
        Connection tooMany;
        synchronized (this) {
            Deque<Connection> there = idle.computeIfAbsent(connection.address(), absent -> new ArrayDeque<>());
            there.addLast(connection);
            tooMany = there.size() > IDLE_MAX ? there.pollFirst() : null;
        }
        if (tooMany != null) {
            tooMany.close();
        }
    }
}
