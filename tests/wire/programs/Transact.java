import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Transactions of Kafka's own producer, one after the other, until stdin is closed: Transact SERVERS TOPIC ID.
 * What it says is told in tests/kits/outcomekit.py. With `read` in front, `read SERVERS TOPIC`, it prints `PARTITION VALUE` of
 * each committed record instead.
 */
public class Transact {
    static final int PARTITIONS = 6;
    static volatile boolean closed;

    static void say(String what, int number) {
        System.out.println(what + " " + number);
    }

    /** commitTransaction and abortTransaction may be called again after a TimeoutException, and nothing else may be. */
    static void again(Runnable call) {
        for (int tries = 0; ; tries++) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (tries == 3) throw error;
            }
        }
    }

    static KafkaProducer<String, String> producer(String servers, String id) {
        var made = new KafkaProducer<String, String>(
            Map.of("bootstrap.servers", servers, "transactional.id", id, "transaction.timeout.ms", "30000", "max.block.ms", "20000",
                "request.timeout.ms", "10000", "delivery.timeout.ms", "30000"),
            new StringSerializer(), new StringSerializer());
        again(made::initTransactions);
        return made;
    }

    static void transact(KafkaProducer<String, String> producer, String topic, int number) {
        producer.beginTransaction();
        for (int partition = 0; partition < PARTITIONS; partition++)
            producer.send(new ProducerRecord<>(topic, partition, null, Integer.toString(number)));
        if (number % 2 == 1) {
            producer.flush();
            again(producer::abortTransaction);
            say("aborted", number);
        } else {
            again(producer::commitTransaction);
            say("committed", number);
        }
    }

    static void write(String servers, String topic, String id) throws Exception {
        var producer = producer(servers, id);
        for (int number = 0; !closed; number++) {
            say("begun", number);
            try {
                try {
                    transact(producer, topic, number);
                } catch (TimeoutException | ProducerFencedException | InvalidProducerEpochException notToBeAborted) {
                    throw notToBeAborted;
                } catch (KafkaException error) {
                    System.err.println(number + " " + error);
                    again(producer::abortTransaction);
                    say("aborted", number);
                }
            } catch (KafkaException error) {
                System.err.println(number + " " + error);
                producer.close(Duration.ZERO);
                producer = producer(servers, id);
            }
        }
        producer.close();
    }

    static void read(String servers, String topic) {
        var consumer = new KafkaConsumer<String, String>(
            Map.of("bootstrap.servers", servers, "isolation.level", "read_committed"),
            new StringDeserializer(), new StringDeserializer());
        var partitions = new ArrayList<TopicPartition>();
        for (int partition = 0; partition < PARTITIONS; partition++) partitions.add(new TopicPartition(topic, partition));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        var ends = consumer.endOffsets(partitions);
        while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each)))
            for (var record : consumer.poll(Duration.ofMillis(500))) System.out.println(record.partition() + " " + record.value());
        consumer.close();
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("read")) {
            read(args[1], args[2]);
            return;
        }
        var watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) {
                System.err.println(gone);
            }
            closed = true;
        });
        watcher.setDaemon(true);
        watcher.start();
        write(args[0], args[1], args[2]);
    }
}
