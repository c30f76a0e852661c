package io.raftlake.spark.live;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What the options name and is not there. Spark's errors tell of the file that they did not find; nothing is asked before one. */
final class Missing {
    private static final String NUMBER = "[0-9]{1,18}";

    private Missing() {}

    /** IllegalArgumentException, with Spark's error as its cause, where something is missing; else Spark's error. */
    static <T> T explaining(CaseInsensitiveStringMap options, Configuration conf, Callable<T> call) {
        try {
            return call.call();
        } catch (Exception error) {
            // Spark's errors are checked ones that its methods do not name.
            Optional<String> told;
            try {
                told = told(options, conf);
            } catch (IOException unreachable) {
                error.addSuppressed(unreachable);
                told = Optional.empty();
            }
            if (told.isPresent()) {
                throw new IllegalArgumentException(told.get(), error);
            }
            throw Missing.<RuntimeException>same(error);
        }
    }

    /** The error as it is, for a method that does not name it. */
    @SuppressWarnings("unchecked")
    private static <E extends Exception> E same(Exception error) throws E {
        throw (E) error;
    }

    private static Optional<String> told(CaseInsensitiveStringMap options, Configuration conf) throws IOException {
        for (String name : List.of("batchId", "operatorId")) {
            if (!options.getOrDefault(name, "0").matches(NUMBER)) {
                return Optional.of("option '" + name + "' is '" + options.get(name) + "', expected a number, 0 or more");
            }
        }
        String path = options.get("path");
        if (path == null) {
            return Optional.empty();
        }
        Path root = new Path(path);
        FileSystem files = root.getFileSystem(conf);
        if (!files.exists(new Path(root, "metadata"))) {
            return Optional.of("there is no checkpoint at '" + path + "': no file 'metadata' is in it. `raftlake checkpoints list` "
                    + "shows those of the quorum");
        }
        List<Long> operators = numbers(files, new Path(root, "state"));
        if (operators.isEmpty()) {
            return Optional.of("the query of checkpoint '" + path + "' keeps no state");
        }
        if (!operators.contains(options.getLong("operatorId", 0))) {
            return Optional.of("operator " + options.getInt("operatorId", 0) + " of checkpoint '" + path + "' (option 'operatorId') "
                    + "keeps no state; operators with state: "
                    + operators.stream().map(String::valueOf).collect(Collectors.joining(", ")));
        }
        return Optional.empty();
    }

    /** The names in a directory that are numbers, ascending; none where it is not there. */
    static List<Long> numbers(FileSystem files, Path directory) throws IOException {
        FileStatus[] found;
        try {
            found = files.listStatus(directory);
        } catch (FileNotFoundException none) {
            return List.of();
        }
        return Stream.of(found)
                .map(status -> status.getPath().getName())
                .filter(name -> name.matches(NUMBER))
                .map(Long::valueOf)
                .sorted()
                .toList();
    }
}
