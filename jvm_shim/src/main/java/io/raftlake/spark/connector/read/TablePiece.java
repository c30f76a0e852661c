package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.table.TableFile;
import java.io.Serializable;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.VariantExtraction;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScan;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A task's part of a table.
 *
 * @param parquet Spark's readers of the files, with the columns of {@link #columns}
 * @param files in the order of their offsets
 * @param readsLog whether the nodes may be asked where a file cannot be read
 */
record TablePiece(ParquetPartitionReaderFactory parquet, List<TableFile> files, boolean readsLog) implements Serializable {
    /** Of a range, on the driver: Spark's readers are told which offsets it has, so that they leave out parts of files. */
    static TablePiece of(ParquetPartitionReaderFactory all, OffsetRange range, List<TableFile> files, boolean readsLog) {
        Filter[] filters = {new GreaterThanOrEqual("offset", range.start()), new LessThan("offset", range.end())};
        return new TablePiece(all.copy(all.sqlConf(), all.broadcastedConf(), all.dataSchema(), all.readDataSchema(),
                all.partitionSchema(), filters, all.aggregation(), all.options()), files, readsLog);
    }

    /** The columns that are read of files for a query of {@code columns}: the constant ones are not, and two are always. */
    static StructType columns(StructType columns) {
        Set<String> names = new LinkedHashSet<>(List.of(columns.fieldNames()));
        names.removeAll(List.of("topic", "partition"));
        StructType read = new StructType();
        for (String name : names) {
            read = read.add(columns.apply(name));
        }
        read = names.contains("offset") ? read : read.add("offset", DataTypes.LongType);
        return read.add("kind", DataTypes.ByteType);
    }

    /** Spark's readers of files with these columns. */
    static ParquetPartitionReaderFactory readers(SparkSession session, Configuration conf, StructType columns) {
        StructType read = columns(columns);
        Seq<Expression> none = CollectionConverters.asScala(List.<Expression>of()).toSeq();
        ParquetScan scan = new ParquetScan(session, conf, null, read, read, new StructType(), new Filter[0],
                CaseInsensitiveStringMap.empty(), Option.empty(),
                none, none, new VariantExtraction[0]);
        return (ParquetPartitionReaderFactory) scan.createReaderFactory();
    }
}
