//! rskafka at a quorum:
//!
//! - `create SERVERS TOPIC PARTITIONS`
//! - `list SERVERS`: name and number of partitions of each topic
//! - `write SERVERS TOPIC`: a number to each partition, until stdin is closed; tests/kits/outcomekit.py tells what it says.
//!   rskafka has no idempotent producer: what it sends again may be there twice.
//! - `read SERVERS TOPIC`: `PARTITION VALUE` up to the record `end` of each partition

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rskafka::chrono::DateTime;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

type Done<T> = Result<T, Box<dyn std::error::Error>>;

const PARTITIONS: i32 = 6;

async fn client(servers: &str) -> Done<Client> {
    let servers = servers.split(',').map(String::from).collect();
    Ok(ClientBuilder::new(servers).build().await?)
}

async fn partition(client: &Client, topic: &str, index: i32) -> Done<PartitionClient> {
    Ok(client.partition_client(topic, index, UnknownTopicHandling::Retry).await?)
}

fn record(number: i64) -> Done<Record> {
    let value = Some(number.to_string().into_bytes());
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let timestamp = DateTime::from_timestamp_millis(now_ms.try_into()?).ok_or("a clock beyond all dates")?;
    Ok(Record { key: None, value, headers: BTreeMap::new(), timestamp })
}

async fn write(client: &Client, topic: &str) -> Done<()> {
    let closed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&closed);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::SeqCst);
    });
    let mut number = 0;
    while !closed.load(Ordering::SeqCst) {
        println!("begun {number}");
        for index in 0..PARTITIONS {
            let compression = if number % 2 == 0 { Compression::Gzip } else { Compression::NoCompression };
            partition(client, topic, index).await?.produce(vec![record(number)?], compression).await?;
        }
        println!("committed {number}");
        number += 1;
    }
    Ok(())
}

async fn read(client: &Client, topic: &str, index: i32) -> Done<()> {
    let partition = partition(client, topic, index).await?;
    let mut offset = 0;
    loop {
        let (records, _) = partition.fetch_records(offset, 1..1_000_000, 500).await?;
        for each in records {
            offset = each.offset + 1;
            let value = String::from_utf8(each.record.value.unwrap_or_default())?;
            if value == "end" {
                return Ok(());
            }
            println!("{index} {value}");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let client = client(&arguments[1]).await?;
    match arguments[0].as_str() {
        "create" => client.controller_client()?.create_topic(&arguments[2], arguments[3].parse()?, 1, 10_000).await?,
        "list" => {
            for topic in client.list_topics().await? {
                println!("{} {}", topic.name, topic.partitions.len());
            }
        }
        "write" => write(&client, &arguments[2]).await?,
        "read" => {
            for index in 0..PARTITIONS {
                read(&client, &arguments[2], index).await?;
            }
        }
        other => return Err(format!("no command: {other}").into()),
    }
    Ok(())
}
