package io.raftlake.spark.state;

import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.state.Changelog.Draft;
import java.io.IOException;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangelogWriter;

/** What Spark writes the changes of a version to. Nothing is sent before the first change, or the commit. */
final class ChangelogWriter extends StateStoreChangelogWriter {
    private final long version;
    private final String id;
    private final StoreLog log;
    private final Ending ending;
    private Draft draft;
    private boolean isOver;

    /** How a version is made to count. */
    @FunctionalInterface
    interface Ending {
        void commit(Draft draft) throws IOException;
    }

    /** {@code id} is null in checkpoint format 1. */
    ChangelogWriter(long version, String id, StoreLog log, Ending ending) {
        super(Nothing.INSTANCE, Nothing.PATH, Nothing.INSTANCE);
        this.version = version;
        this.id = id;
        this.log = log;
        this.ending = ending;
    }

    @Override
    public short version() {
        return Trailer.FORMAT;
    }

    private Draft draft() throws IOException {
        if (draft == null) {
            draft = log.ensure().draft(version, id);
        }
        return draft;
    }

    private void add(LogRecord change) {
        if (isOver) {
            throw new IllegalStateException("the version was committed or aborted");
        }
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
        if (isOver) {
            throw new IllegalStateException("the version was committed or aborted");
        }
        isOver = true;
        try {
            ending.commit(draft());
        } catch (IOException error) {
            throw Unchecked.as(error);
        }
    }

    @Override
    public void abort() {
        isOver = true;
    }
}
