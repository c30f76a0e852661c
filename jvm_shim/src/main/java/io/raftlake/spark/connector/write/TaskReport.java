package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Logs.Partition;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;

/**
 * What one attempt of a task tells the driver.
 *
 * <p>It travels as bytes in a message class of Spark's own. The driver loads messages by the application's class loader, which does
 * not know a class of a jar that came by ADD JAR.
 *
 * @param ending its transaction; null: the task had no rows, or left them out
 * @param transaction its transactional id, else empty
 * @param rows appended, by topic
 * @param partitions where these rows are; nothing where they are many
 */
record TaskReport(Ending ending, String transaction, Map<String, Long> rows, List<Partition> partitions) {
    private static final int PARTITIONS_MAX = 4;

    TaskReport {
        partitions = partitions.size() > PARTITIONS_MAX ? List.of() : List.copyOf(partitions);
    }

    TaskReport(Ending ending, String transaction, Map<String, Long> rows) {
        this(ending, transaction, rows, List.of());
    }

    WriterCommitMessage message() {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(128);
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeBoolean(ending != null);
            out.writeLong(ending == null ? -1 : ending.producerId());
            out.writeShort(ending == null ? -1 : ending.epoch());
            out.writeUTF(transaction);
            out.writeInt(rows.size());
            for (Map.Entry<String, Long> each : rows.entrySet()) {
                out.writeUTF(each.getKey());
                out.writeLong(each.getValue());
            }
            out.writeInt(partitions.size());
            for (Partition at : partitions) {
                out.writeUTF(at.topic());
                out.writeInt(at.partition());
            }
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
        return new PythonWriterCommitMessage(bytes.toByteArray());
    }

    /** Of the tasks that told; a failed one reports null. */
    static List<TaskReport> of(WriterCommitMessage[] messages) {
        List<TaskReport> reports = new ArrayList<>();
        for (WriterCommitMessage message : messages) {
            if (message instanceof PythonWriterCommitMessage told) {
                reports.add(decode(told.pickledMessage()));
            }
        }
        return reports;
    }

    private static TaskReport decode(byte[] bytes) {
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
            boolean hasRows = in.readBoolean();
            Ending ending = new Ending(in.readLong(), in.readShort());
            String transaction = in.readUTF();
            Map<String, Long> rows = new TreeMap<>();
            for (int left = in.readInt(); left > 0; left--) {
                rows.put(in.readUTF(), in.readLong());
            }
            List<Partition> partitions = new ArrayList<>();
            for (int left = in.readInt(); left > 0; left--) {
                partitions.add(new Partition(in.readUTF(), in.readInt()));
            }
            return new TaskReport(hasRows ? ending : null, transaction, rows, partitions);
        } catch (IOException damaged) {
            throw new UncheckedIOException(damaged);
        }
    }

    static List<Ending> endings(List<TaskReport> reports) {
        return reports.stream().map(TaskReport::ending).filter(ending -> ending != null).toList();
    }

    /** The numbers of the tasks that wrote. Each task of the batch has reported. */
    static List<Integer> tasksWithRows(List<TaskReport> reports) {
        return IntStream.range(0, reports.size()).filter(task -> reports.get(task).ending() != null).boxed().toList();
    }

    static Map<String, Long> rows(List<TaskReport> reports) {
        Map<String, Long> sum = new TreeMap<>();
        reports.forEach(report -> report.rows().forEach((topic, rows) -> sum.merge(topic, rows, Long::sum)));
        return sum;
    }
}
