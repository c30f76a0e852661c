package io.raftlake.spark.state;

import io.raftlake.spark.fs.QuorumFiles;
import io.raftlake.spark.fs.ReadAhead;
import io.raftlake.spark.state.Changelog.Name;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata;
import org.apache.spark.sql.execution.streaming.state.RocksDBImmutableFile;
import scala.jdk.javaapi.CollectionConverters;

/** The snapshots of one store, as Spark's RocksDBFileManager lays them out: a small zip names the data files. */
final class Snapshot {
    /** What the name of a zip ends with. */
    static final String ZIP = ".zip";

    private static final String METADATA = "metadata";

    /** A zip is small. A larger one is read when Spark asks for it. */
    private static final int ZIP_BYTES_MAX = 4 << 20;

    private Snapshot() {}

    /** Names in a directory; none where that is not made yet, or deleted. */
    static List<String> names(QuorumFiles files, Path directory) throws IOException {
        List<String> names = new ArrayList<>();
        try {
            for (FileStatus status : files.list(directory)) {
                names.add(status.getPath().getName());
            }
        } catch (FileNotFoundException none) {
            return List.of();
        }
        return names;
    }

    /** The version of a zip, by its name. */
    static long version(String zip) {
        return Long.parseLong(zip.substring(0, zip.length() - ZIP.length()).split("_")[0]);
    }

    /** The zip of the newest of these versions that is among the names of a directory. */
    static Optional<Path> newest(Path directory, List<String> names, List<Name> versions) {
        return versions.stream()
                .sorted(Comparator.comparingLong(Name::version).reversed())
                .map(name -> name.version() + "_" + name.id() + ZIP)
                .filter(names::contains)
                .findFirst()
                .map(name -> new Path(directory, name));
    }

    /** Begins to read a zip, then the data files that it names. */
    static void readAhead(ReadAhead ahead, Path zip) throws IOException {
        ahead.begin(zip, ZIP_BYTES_MAX, content ->
                ahead.begin(dataFiles(zip.getParent(), new ByteArrayInputStream(content))));
    }

    /** The lengths of the data files that a zip in this directory names, in their order. */
    static Map<Path, Long> dataFiles(Path directory, InputStream zip) throws IOException {
        Map<Path, Long> lengths = new LinkedHashMap<>();
        try (ZipInputStream entries = new ZipInputStream(zip)) {
            for (ZipEntry entry = entries.getNextEntry(); entry != null; entry = entries.getNextEntry()) {
                if (entry.getName().equals(METADATA)) {
                    for (RocksDBImmutableFile file : immutableFiles(entries)) {
                        boolean isTable = RocksDBImmutableFile.isSstFile(file.dfsFileName());
                        String below = isTable
                                ? RocksDBImmutableFile.SST_FILES_DFS_SUBDIR()
                                : RocksDBImmutableFile.LOG_FILES_DFS_SUBDIR();
                        lengths.put(new Path(new Path(directory, below), file.dfsFileName()), file.sizeBytes());
                    }
                }
            }
        }
        return lengths;
    }

    private static Collection<RocksDBImmutableFile> immutableFiles(InputStream metadata) throws IOException {
        File file = File.createTempFile("raftlake-snapshot", METADATA);
        try {
            Files.write(file.toPath(), metadata.readAllBytes());
            return CollectionConverters.asJava(RocksDBCheckpointMetadata.readFromFile(file).immutableFiles());
        } finally {
            Files.delete(file.toPath());
        }
    }
}
