"""A lease that one process holds at a time, by compare-and-set:
python examples/lease.py 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094 worker-1

Every change of a key has a version. Taking over names the version that was read; if somebody else was faster, it fails.
"""

from __future__ import annotations

import sys

from raftlake import Client
from raftlake.client import KvConflict

servers, me = sys.argv[1], sys.argv[2].encode()
with Client(servers) as client:
    try:
        version = client.kv.put("examples/lease", me, create=True)
        print(f"{me.decode()} holds the lease, version {version}")
    except KvConflict:
        held = client.kv.get("examples/lease")
        assert held is not None
        print(f"{(held.value or b'').decode()} holds the lease, version {held.version}")
        version = client.kv.put("examples/lease", me, if_version=held.version)
        print(f"{me.decode()} took it over, version {version}")
    client.kv.delete("examples/lease", if_version=version)
    print("released")
