// What kaf asks of a cluster, through the release of Sarama that kaf is built with, and with kaf's settings:
//
//	sarama create SERVERS TOPIC PARTITIONS   as `kaf topic create TOPIC -p PARTITIONS`
//	sarama list SERVERS                      as `kaf topics`: name, partitions and replicas of each topic
//	sarama write SERVERS TOPIC               as `kaf produce`: a number to each partition, until stdin is closed
//	sarama read SERVERS TOPIC                as `kaf consume`: `PARTITION VALUE` up to the record `end` of each partition
//
// What `write` says is told in tests/kits/outcomekit.py.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/IBM/sarama"
)

const partitions = 6

func require(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V1_1_0_0
	made.Producer.Return.Successes = true
	made.Producer.Partitioner = sarama.NewManualPartitioner
	return made
}

func admin(servers []string) sarama.ClusterAdmin {
	made, err := sarama.NewClusterAdmin(servers, config())
	require(err)
	return made
}

// create asks for one replica, as kaf does when nobody says how many.
func create(servers []string, topic, count string) {
	policy := "delete"
	number, err := strconv.Atoi(count)
	require(err)
	require(admin(servers).CreateTopic(topic, &sarama.TopicDetail{
		NumPartitions:     int32(number),
		ReplicationFactor: 1,
		ConfigEntries:     map[string]*string{"cleanup.policy": &policy},
	}, false))
}

func list(servers []string) {
	found, err := admin(servers).ListTopics()
	require(err)
	for name, detail := range found {
		fmt.Println(name, detail.NumPartitions, detail.ReplicationFactor)
	}
}

// send returns an error where the producer has given up. The record may be there all the same.
func send(producer sarama.SyncProducer, topic string, number int) error {
	for partition := int32(0); partition < partitions; partition++ {
		value := sarama.StringEncoder(strconv.Itoa(number))
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: partition, Value: value}); err != nil {
			return err
		}
	}
	return nil
}

func write(servers []string, topic string) {
	var closed atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		closed.Store(true)
	}()
	producer, err := sarama.NewSyncProducer(servers, config())
	require(err)
	for number := 0; !closed.Load(); number++ {
		fmt.Println("begun", number)
		if err := send(producer, topic, number); err != nil {
			fmt.Fprintln(os.Stderr, number, err)
		} else {
			fmt.Println("committed", number)
		}
	}
	require(producer.Close())
}

func read(servers []string, topic string) {
	settings := config()
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(servers, settings)
	require(err)
	for partition := int32(0); partition < partitions; partition++ {
		claim, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		require(err)
		for message := range claim.Messages() {
			if string(message.Value) == "end" {
				break
			}
			fmt.Println(partition, string(message.Value))
		}
	}
}

func main() {
	servers := strings.Split(os.Args[2], ",")
	switch os.Args[1] {
	case "create":
		create(servers, os.Args[3], os.Args[4])
	case "list":
		list(servers)
	case "write":
		write(servers, os.Args[3])
	case "read":
		read(servers, os.Args[3])
	}
}
