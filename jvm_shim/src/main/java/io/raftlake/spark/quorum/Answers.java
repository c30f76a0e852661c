package io.raftlake.spark.quorum;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpResponse;

/** What headers of answers say. */
final class Answers {
    /** Nodes say 1 where they mean soon; Retry-After knows nothing shorter. */
    private static final int SOON_S = 1;

    private static final int RETRY_AFTER_S_MAX = 60;

    private Answers() {}

    /** The address of the leader that a 307 names. Of a write without one, nobody knows what became of it. */
    static String location(HttpResponse<byte[]> answer, boolean isWrite) throws IOException, Http.Unknown {
        String told = answer.headers().firstValue("location").orElse("");
        try {
            URI uri = URI.create(told);
            if (uri.getHost() != null && ("http".equals(uri.getScheme()) || "https".equals(uri.getScheme()))) {
                return uri.getScheme() + "://" + uri.getRawAuthority();
            }
        } catch (IllegalArgumentException noAddress) {
            // Told below, as an address without a host is.
        }
        String text = answer.uri() + " answered 307 without the leader's address: '" + told + "'";
        if (isWrite) {
            throw new Http.Unknown(text);
        }
        throw new RefusedException(text);
    }

    /** Whether it looks like a node's error: what stands between client and node answers as it likes. */
    static boolean isOfANode(HttpResponse<byte[]> answer) {
        return answer.headers().firstValue("x-raftlake-offset").isPresent() && Json.hasErrorText(answer.body());
    }

    /** The end of what the answer reflects of the log. */
    static long offset(HttpResponse<byte[]> answer) throws IOException {
        String told = answer.headers().firstValue("x-raftlake-offset").orElse("");
        if (!told.matches("[0-9]{1,18}")) {
            throw new RefusedException(answer.uri() + " answered without its offset");
        }
        return Long.parseLong(told);
    }

    static void waitAsTold(HttpResponse<byte[]> answer, Deadline deadline) throws IOException {
        String told = answer.headers().firstValue("retry-after").orElse("");
        if (told.matches("[0-9]{1,4}") && Integer.parseInt(told) > SOON_S) {
            deadline.pause(1000L * Math.min(Integer.parseInt(told), RETRY_AFTER_S_MAX));
        }
    }
}
