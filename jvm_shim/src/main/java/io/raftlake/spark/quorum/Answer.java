package io.raftlake.spark.quorum;

import java.io.IOException;
import java.net.URI;
import java.util.Map;

/** What was answered at {@code uri}. {@code headers}: by names in lower case. */
record Answer(String uri, int status, Map<String, String> headers, byte[] body) {
    /** Nodes say 1 where they mean soon; Retry-After knows nothing shorter. */
    private static final int SOON_S = 1;

    private static final int RETRY_AFTER_S_MAX = 60;

    /** Empty where there is none. */
    String header(String name) {
        return headers.getOrDefault(name, "");
    }

    boolean hasRetryAfter() {
        return headers.containsKey("retry-after");
    }

    /** The address of the leader that a 307 names. Of a write without one, nobody knows what became of it. */
    String leader(boolean isWrite) throws IOException, Http.Unknown {
        String told = header("location");
        try {
            URI place = URI.create(told);
            if (place.getHost() != null && ("http".equals(place.getScheme()) || "https".equals(place.getScheme()))) {
                return place.getScheme() + "://" + place.getRawAuthority();
            }
        } catch (IllegalArgumentException noAddress) {
            // Told below, as an address without a host is.
        }
        String text = uri + " answered 307 without the leader's address: '" + told + "'";
        if (isWrite) {
            throw new Http.Unknown(text);
        }
        throw new RefusedException(text);
    }

    /** Whether it looks like a node's error: what stands between client and node answers as it likes. */
    boolean isOfANode() {
        return headers.containsKey("x-raftlake-offset") && Json.hasErrorText(body);
    }

    /** The end of what the answer reflects of the log. */
    long offset() throws IOException {
        String told = header("x-raftlake-offset");
        if (!told.matches("[0-9]{1,18}")) {
            throw new RefusedException(uri + " answered without its offset");
        }
        return Long.parseLong(told);
    }

    void waitAsTold(Deadline deadline) throws IOException {
        String told = header("retry-after");
        if (told.matches("[0-9]{1,4}") && Integer.parseInt(told) > SOON_S) {
            deadline.pause(1000L * Math.min(Integer.parseInt(told), RETRY_AFTER_S_MAX));
        }
    }
}
