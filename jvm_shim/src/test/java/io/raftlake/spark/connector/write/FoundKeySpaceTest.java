package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Nodes that move to other HTTP listeners while a driver runs. */
@Tag("memory")
class FoundKeySpaceTest {
    private static final Witness NONE = space -> false;

    /** Listeners at which every call ends with the same error. */
    private record Failing(IOException error) implements KeySpace {
        @Override
        public Optional<Entry> get(String key) throws IOException {
            throw error;
        }

        @Override
        public Page list(ListRequest request) throws IOException {
            throw error;
        }

        @Override
        public TxnResult commit(Txn txn, Witness witness) throws IOException {
            throw error;
        }

        @Override
        public String describe() {
            return "failing";
        }
    }

    private final Deque<KeySpace> findings = new ArrayDeque<>();
    private final FoundKeySpace space = new FoundKeySpace("a:1", findings::remove);

    private void assertFoundAnew(IOException silent) throws IOException {
        findings.addAll(List.of(new Failing(silent), new Failing(silent), new Failing(silent), new MemoryKeySpace()));
        assertThrows(silent.getClass(), () -> space.get("k"));
        assertThrows(silent.getClass(), () -> space.list(ListRequest.deep("k", false)));
        assertThrows(silent.getClass(), () -> space.commit(new Txn().put("k", new byte[1]), NONE));
        assertEquals(Optional.empty(), space.get("k"));
        assertEquals(0, findings.size(), "each silent call is followed by a look");
        // Listeners that answer are kept: another look would find none.
        space.commit(new Txn().put("k", new byte[1]), NONE);
        assertEquals(1, space.list(ListRequest.deep("k", false)).entries().size());
    }

    @Test
    void listenersOfWhichNoneAnswersAreFoundAnew() throws IOException {
        assertFoundAnew(new QuorumUnavailableException("moved"));
    }

    @Test
    void listenersThatAreLostAmidAChangeAreFoundAnew() throws IOException {
        assertFoundAnew(new UnknownOutcomeException("moved"));
    }

    @Test
    void listenersThatRefuseAreKept() {
        findings.add(new Failing(new RefusedException("no")));
        assertThrows(RefusedException.class, () -> space.get("k"));
        assertThrows(RefusedException.class, () -> space.get("k"));
        assertEquals("a:1", space.describe());
    }

    @Test
    void nodesThatCannotBeAskedAreAskedAgain() throws IOException {
        Deque<IOException> errors = new ArrayDeque<>(List.of(new QuorumUnavailableException("away")));
        MemoryKeySpace found = new MemoryKeySpace();
        FoundKeySpace later = new FoundKeySpace("a:1", () -> {
            if (!errors.isEmpty()) {
                throw errors.remove();
            }
            return found;
        });
        assertThrows(QuorumUnavailableException.class, () -> later.get("k"));
        assertEquals(Optional.empty(), later.get("k"));
    }
}
