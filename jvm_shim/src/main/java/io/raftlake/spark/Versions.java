package io.raftlake.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** The versions that this jar was built from and for. The build writes them into {@value #FILE}. */
public final class Versions {
    static final String FILE = "raftlake-spark.properties";

    private static final Properties BUILT = read();

    private Versions() {}

    /** Of raftlake, and of this jar. */
    public static String raftlake() {
        return BUILT.getProperty("raftlake.version");
    }

    /** Of the Spark whose jars this one was compiled against. */
    public static String spark() {
        return BUILT.getProperty("spark.version");
    }

    /**
     * IllegalStateException, naming both versions, where another feature release of Spark runs than this jar is for. Nothing
     * where no Spark is there: Hadoop's own tools use the file system too.
     */
    public static void requireSpark() {
        requireSpark(running());
    }

    static void requireSpark(String running) {
        if (running != null && !feature(running).equals(feature(spark()))) {
            throw new IllegalStateException("raftlake-spark " + raftlake() + " is built for Spark " + feature(spark())
                    + ", and this is Spark " + running + ": use the jar of the raftlake release for that Spark");
        }
    }

    /** The version of the Spark on the class path; null for none. */
    private static String running() {
        try {
            Class<?> spark = Class.forName("org.apache.spark.package$", true, Versions.class.getClassLoader());
            return (String) spark.getMethod("SPARK_VERSION").invoke(spark.getField("MODULE$").get(null));
        } catch (ClassNotFoundException none) {
            return null;
        } catch (ReflectiveOperationException | LinkageError other) {
            return "of an unknown version (" + other + ")";
        }
    }

    /** "4.2" of "4.2.0". */
    private static String feature(String version) {
        String[] parts = version.split("\\.");
        return parts.length < 2 ? version : parts[0] + "." + parts[1];
    }

    private static Properties read() {
        Properties properties = new Properties();
        try (InputStream file = Versions.class.getResourceAsStream("/" + FILE)) {
            if (file == null) {
                throw new IllegalStateException(FILE + " is missing in the jar of raftlake-spark");
            }
            properties.load(file);
            return properties;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
