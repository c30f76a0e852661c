package io.raftlake.spark.quorum;

import java.io.IOException;
import java.util.List;
import java.util.Optional;

/**
 * The key-value space of a quorum over HTTP.
 *
 * <p>How a commit whose answer was lost is decided: its witness is read. Where the witness holds, the commit happened.
 * Where it does not, the same transaction is sent again, because its compares let it happen once: if the first one comes
 * late, the second fails on its compares, and then the witness holds. A transaction without compares is not sent again.
 *
 * <p>What this cannot see: the transaction happened, and somebody undid it before the witness was read. Then it may happen
 * a second time, or end as {@link UnknownOutcomeException}.
 */
public final class HttpKeySpace implements KeySpace {
    private static final char[] HEX = "0123456789ABCDEF".toCharArray();

    private final Http http;
    private final long timeoutMs;

    /** {@code servers} as {@link Servers#parse} gives them; {@code timeoutMs} is how long one call tries. */
    public HttpKeySpace(List<String> servers, long timeoutMs) {
        this.http = new Http(servers);
        this.timeoutMs = timeoutMs;
    }

    @Override
    public Optional<Entry> get(String key) throws IOException {
        Answer answer = http.read("/v1/kv/" + escape(key), new Deadline(timeoutMs));
        if (answer.status() == 404) {
            // Of a node: a proxy that knows no such page would make every file look absent.
            if (!answer.isOfANode()) {
                throw new RefusedException(answer.uri() + " answered 404, and is no raftlake node");
            }
            return Optional.empty();
        }
        String tag = answer.header("etag");
        if (!tag.matches("\"[1-9][0-9]{0,18}\"")) {
            throw new RefusedException(answer.uri() + " answered without a version");
        }
        return Optional.of(new Entry(key, Long.parseLong(tag.substring(1, tag.length() - 1)), answer.body()));
    }

    @Override
    public Page list(ListRequest request) throws IOException {
        StringBuilder target = new StringBuilder("/v1/kv?prefix=").append(escape(request.prefix()));
        target.append("&limit=").append(request.limit());
        if (request.delimiter() != null) {
            target.append("&delimiter=").append(escape(request.delimiter()));
        }
        if (request.after() != null) {
            target.append("&after=").append(escape(request.after()));
        }
        if (request.values()) {
            target.append("&values=true");
        }
        Answer answer = http.read(target.toString(), new Deadline(timeoutMs));
        if (answer.status() == 404) {
            throw new RefusedException(answer.uri() + " answered 404, and is no raftlake node");
        }
        return Json.page(answer.body(), answer.offset() - 1);
    }

    @Override
    public TxnResult commit(Txn txn, Witness witness) throws IOException {
        byte[] body = Json.ofTxn(txn);
        Deadline deadline = new Deadline(timeoutMs);
        String unknown = null;
        while (true) {
            try {
                TxnResult result = result(http.write("/v1/txn", body, deadline));
                if (result.succeeded() || unknown == null) {
                    return result;
                }
                // An earlier try may be what stands in the way of this one.
                return witness.holds(this) ? TxnResult.happened(0) : result;
            } catch (Http.Unknown told) {
                unknown = told.getMessage();
            } catch (QuorumUnavailableException | RefusedException error) {
                if (unknown != null) {
                    throw unknown(txn, unknown + "; then " + error.getMessage(), error);
                }
                throw error;
            }
            if (readBack(txn, witness, unknown)) {
                return TxnResult.happened(0);
            }
            if (txn.compares().isEmpty() || deadline.isOver()) {
                throw unknown(txn, unknown, null);
            }
            deadline.pause();
        }
    }

    private boolean readBack(Txn txn, Witness witness, String unknown) throws IOException {
        try {
            return witness.holds(this);
        } catch (QuorumUnavailableException | RefusedException error) {
            throw unknown(txn, unknown + "; the look at its keys failed: " + error.getMessage(), error);
        }
    }

    private static TxnResult result(Answer answer) throws Http.Unknown {
        if (answer.status() == 412) {
            TxnResult refused = Json.inTheWay(answer.body());
            if (refused == null) {
                throw new Http.Unknown(answer.uri() + " answered 412 without the keys in the way");
            }
            return refused;
        }
        long version = Json.version(answer.body());
        if (version == 0) {
            throw new Http.Unknown(answer.uri() + " answered 200 without a version");
        }
        return TxnResult.happened(version);
    }

    private static UnknownOutcomeException unknown(Txn txn, String told, Throwable cause) {
        return new UnknownOutcomeException("the outcome of a transaction on key '" + txn.subject()
                + "' is unknown, it may have happened or may still happen: " + told, cause);
    }

    @Override
    public String describe() {
        return Servers.SETTING + "=" + String.join(",", http.fronts());
    }

    /** Percent-encoded UTF-8. Dots and slashes too: nothing on the way shall take a key for a relative path. */
    static String escape(String text) {
        StringBuilder escaped = new StringBuilder(text.length() + 16);
        for (byte b : Keys.utf8(text)) {
            boolean isPlain = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_';
            if (isPlain) {
                escaped.append((char) b);
            } else {
                escaped.append('%').append(HEX[b >> 4 & 15]).append(HEX[b & 15]);
            }
        }
        return escaped.toString();
    }
}
