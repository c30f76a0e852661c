package io.raftlake.spark.state;

import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.state.Changelog.Draft;
import java.io.IOException;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangelogWriter;

/** What Spark writes the changes of a version to. Nothing is sent before a piece is full, or the commit. */
final class ChangelogWriter extends StateStoreChangelogWriter {
    private final Ending ending;
    private Draft draft;

    /** How a version is made to count. */
    @FunctionalInterface
    interface Ending {
        void commit(Draft draft) throws IOException;
    }

    ChangelogWriter(Draft draft, Ending ending) {
        super(Nothing.INSTANCE, Nothing.PATH, Nothing.INSTANCE);
        this.draft = draft;
        this.ending = ending;
    }

    @Override
    public short version() {
        return Trailer.FORMAT;
    }

    private Draft draft() {
        if (draft == null) {
            throw new IllegalStateException("the version was committed or aborted");
        }
        return draft;
    }

    private void add(LogRecord change) {
        try {
            draft().add(change);
        } catch (IOException error) {
            throw Unchecked.as(error);
        }
    }

    @Override
    public void put(byte[] key, byte[] value) {
        add(Change.put(key, value));
    }

    @Override
    public void delete(byte[] key) {
        add(Change.delete(key));
    }

    @Override
    public void merge(byte[] key, byte[] value) {
        add(Change.merge(key, value));
    }

    @Override
    public void deleteRange(byte[] beginKey, byte[] endKey) {
        add(Change.deleteRange(beginKey, endKey));
    }

    @Override
    public void commit() {
        try {
            ending.commit(draft());
        } catch (IOException error) {
            throw Unchecked.as(error);
        } finally {
            draft = null;
        }
    }

    @Override
    public void abort() {
        draft = null;
    }
}
