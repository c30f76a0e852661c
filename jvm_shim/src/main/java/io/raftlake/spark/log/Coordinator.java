package io.raftlake.spark.log;

import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;

/** The node that coordinates transactions, wherever it is. */
final class Coordinator {
    private final Cluster cluster;
    private volatile InetSocketAddress address;

    Coordinator(Cluster cluster) {
        this.cluster = cluster;
    }

    /**
     * The result of a request that may be repeated. Errors: QuorumUnavailableException where nobody answered in time,
     * {@link RefusedException} for an error code that does not pass.
     */
    <T> T ask(Api api, Out body, Tries tries, Cluster.Meaning<T> meaning) throws IOException {
        while (true) {
            InetSocketAddress node = address;
            try {
                if (node == null) {
                    node = find(tries);
                }
                ByteBuffer answer = cluster.ask(node, api, body, tries.attemptMs(0));
                T found = meaning.of(answer);
                address = node;
                return found;
            } catch (Lost lost) {
                note(tries, node, lost);
            } catch (Refusal refusal) {
                if (!refusal.code().passes()) {
                    throw new RefusedException(tries.what() + ": " + refusal.getMessage());
                }
                note(tries, node, refusal);
            }
            address = null;
            if (tries.isOver()) {
                throw tries.unavailable();
            }
            tries.pause();
        }
    }

    /** {@code node} is null where none was found. */
    private static void note(Tries tries, InetSocketAddress node, Exception error) {
        if (node == null) {
            tries.note("the coordinator", Connection.reason(error));
        } else {
            tries.note(node, error);
        }
    }

    private InetSocketAddress find(Tries tries) throws IOException, Refusal {
        TransactionMessages.Place place = cluster.askAny(Api.FIND_COORDINATOR, TransactionMessages.findCoordinator(), tries,
                false, TransactionMessages::findCoordinator);
        return InetSocketAddress.createUnresolved(place.host(), place.port());
    }
}
