"""Append records and read them back, linearizably:
python examples/append_and_read.py 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094

`read_offset` answers the end of the log at some moment after the call began: whatever was acknowledged before lies below it.
"""

from __future__ import annotations

import sys

from raftlake import Client

servers = sys.argv[1]
with Client(servers) as client:
    client.create_topic("greetings", partitions=1, exist_ok=True)
    appended = client.append("greetings", b"hello", key=b"example", partition=0)
    print(f"appended at offset {appended.offset}: on disk at a majority")

    end = client.read_offset("greetings")[0]
    assert end > appended.offset
    for record in client.read("greetings", 0, appended.offset):
        print(f"offset {record.offset}: {record.key!r} -> {record.value!r}")
