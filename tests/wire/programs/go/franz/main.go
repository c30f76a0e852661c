// Transactions of franz-go, one after the other, until stdin is closed: `franz SERVERS TOPIC ID`. What it says is told in
// tests/kits/outcomekit.py. With `read` in front, `franz read SERVERS TOPIC`, it prints `PARTITION VALUE` of each committed
// record up to the record `end` of each partition instead.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 6

func newClient(servers, id string) *kgo.Client {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(30*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(30*time.Second),
	)
	if err != nil {
		panic(err)
	}
	return client
}

// transact returns what the client was told, and an error where it was told nothing.
func transact(client *kgo.Client, topic string, number int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return "", err
	}
	var records []*kgo.Record
	for partition := int32(0); partition < partitions; partition++ {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(strconv.Itoa(number))})
	}
	how, told := kgo.TryCommit, "committed"
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil || number%2 == 1 {
		how, told = kgo.TryAbort, "aborted"
	}
	return told, client.EndTransaction(ctx, how)
}

func write(servers, topic, id string) {
	var closed atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		closed.Store(true)
	}()
	client := newClient(servers, id)
	for number := 0; !closed.Load(); number++ {
		fmt.Println("begun", number)
		told, err := transact(client, topic, number)
		if err == nil {
			fmt.Println(told, number)
			continue
		}
		fmt.Fprintln(os.Stderr, number, err)
		client.Close()
		client = newClient(servers, id)
	}
	client.Close()
}

func read(servers, topic string) {
	starts := map[int32]kgo.Offset{}
	for partition := int32(0); partition < partitions; partition++ {
		starts[partition] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	for ended := 0; ended < partitions; {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			if string(record.Value) == "end" {
				ended++
			} else {
				fmt.Println(record.Partition, string(record.Value))
			}
		})
	}
}

func main() {
	if os.Args[1] == "read" {
		read(os.Args[2], os.Args[3])
	} else {
		write(os.Args[1], os.Args[2], os.Args[3])
	}
}
