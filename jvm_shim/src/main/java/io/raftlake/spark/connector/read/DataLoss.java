package io.raftlake.spark.connector.read;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Offsets that the query has to read are not there any more, and {@code failOnDataLoss} is true. */
public final class DataLoss extends RuntimeException {
    private static final long serialVersionUID = 1;

    private static final Logger LOG = LoggerFactory.getLogger(DataLoss.class);
    private static final String HOW_TO_GO_ON = "Some data may have been lost because they are not available in raftlake any "
            + "more; either the data was aged out by retention or the topic may have been deleted before all the data in the "
            + "topic was processed. If you don't want your query to fail on such cases, set the source option "
            + "\"failOnDataLoss\" to \"false\".";

    private DataLoss(String message) {
        super(message + ". " + HOW_TO_GO_ON);
    }

    /**
     * The one decision about lost data: {@code failOnDataLoss} makes it an error, or a warning after which the query goes on.
     */
    static void report(String message, boolean fail) {
        if (fail) {
            throw new DataLoss(message);
        }
        LOG.warn("{}; going on because failOnDataLoss is false", message);
    }
}
