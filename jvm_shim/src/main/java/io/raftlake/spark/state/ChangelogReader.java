package io.raftlake.spark.state;

import io.raftlake.spark.log.Logs.Numbered;
import io.raftlake.spark.state.Trailer.Piece;
import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.execution.streaming.state.LineageItem;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangelogReader;
import scala.Enumeration;
import scala.Tuple3;

/** The changes of one version, in the order in which they were made. Its trailers must be the ones that were expected. */
final class ChangelogReader extends StateStoreChangelogReader {
    private final Changelog changelog;
    private final List<Piece> place;
    private final long wanted;
    private int piece;
    private long offset;

    ChangelogReader(Changelog changelog, List<Piece> place, long version) {
        super(Nothing.INSTANCE, Nothing.PATH, Nothing.INSTANCE);
        this.changelog = changelog;
        this.place = place;
        this.wanted = version;
        this.offset = place.get(0).first();
    }

    @Override
    public short version() {
        return Trailer.FORMAT;
    }

    @Override
    public LineageItem[] lineage() {
        try {
            return changelog.trailer(place).lineage().stream()
                    .map(one -> new LineageItem(one.version(), one.id()))
                    .toArray(LineageItem[]::new);
        } catch (IOException error) {
            throw Unchecked.as(error);
        }
    }

    @Override
    public Tuple3<Enumeration.Value, byte[], byte[]> getNext() {
        try {
            while (piece < place.size()) {
                Numbered found = changelog.record(offset);
                if (offset < place.get(piece).trailer()) {
                    offset++;
                    return Change.decode(found.record());
                }
                require(Trailer.decode(found));
                piece++;
                offset = piece < place.size() ? place.get(piece).first() : -1;
            }
            finished_$eq(true);
            return null;
        } catch (IOException error) {
            throw Unchecked.as(error);
        }
    }

    private void require(Trailer trailer) throws IOException {
        boolean isLast = piece == place.size() - 1;
        if (trailer == null || trailer.version() != wanted || trailer.isLast() != isLast) {
            throw new IOException(changelog + " holds something else than version " + wanted + " up to offset " + offset);
        }
    }

    @Override
    public void close() {}
}
