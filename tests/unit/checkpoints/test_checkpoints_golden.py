"""The format of files in the key space, byte for byte as the Java file system has it: places, nodes, owners, spoilt values.

`GoldenTest.java` reads the same golden.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raftlake.checkpoints.location import Location
from raftlake.checkpoints.log_blobs import BlobName
from raftlake.checkpoints.node import INLINE_BYTES_MAX, Kind, Node
from raftlake.checkpoints.owner import Owner
from raftlake.errors import ConfigError, InvalidInput

ROOT = Path(__file__).resolve().parents[3]
GOLDEN: dict[str, Any] = json.loads(
    (ROOT / "jvm_shim/src/test/resources/io/raftlake/spark/fs/golden.json").read_text(encoding="utf-8")
)
BLOB = bytes(number % GOLDEN["blob"]["step"] for number in range(GOLDEN["blob"]["length"]))


def with_id(node: Node, of: dict[str, Any]) -> bytes:
    return node.encode().replace(node.facts["id"].encode(), of["id"].encode())


def test_keys_of_places() -> None:
    for place in GOLDEN["locations"]:
        assert Location.of(place["pipeline"], place["path"]).key == place["key"]


def test_values_of_files() -> None:
    directory, inline, blob = GOLDEN["directory"], GOLDEN["inline"], GOLDEN["blob"]
    assert with_id(Node.directory(directory["mtime"]), directory).hex() == directory["value"]
    assert with_id(Node.inline(inline["mtime"], inline["content"].encode()), inline).hex() == inline["value"]
    assert Node.blob(blob["mtime"], blob["id"], blob["uri"], BLOB).encode().hex() == blob["value"]
    for each in (directory, inline, blob):
        value = bytes.fromhex(each["value"])
        assert Node.decode("/fs/p/f", value).encode() == value
    assert Node.decode("/fs/p/f", bytes.fromhex(inline["value"])).content == inline["content"].encode()


def test_the_value_of_an_owner_key() -> None:
    golden = GOLDEN["owner"]
    owner = Owner.decode(golden["value"].encode())
    assert owner == Owner(*(golden[name] for name in ("run", "query", "host", "pid", "since_ms")))
    assert owner.encode() == golden["value"].encode()
    assert "since 2023-11-14T22:13:20Z" in str(owner)
    assert Owner.decode(b"no JSON") == Owner("", "", "", 0, 0)


@pytest.mark.parametrize(
    ("since_ms", "shown"),
    [
        (-1, "1970-01-01T00:00:00Z"),
        (0, "1970-01-01T00:00:00Z"),
        (1_000, "1970-01-01T00:00:01Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59Z"),
        (253_402_300_800_000, "1970-01-01T00:00:00Z"),
        (10**400, "1970-01-01T00:00:00Z"),
        (-(10**400), "1970-01-01T00:00:00Z"),
        (1.5, "1970-01-01T00:00:00Z"),
        (True, "1970-01-01T00:00:00Z"),
    ],
)
def test_an_owner_since_a_time_that_is_none_is_an_owner(since_ms: object, shown: str) -> None:
    owner = Owner.decode(json.dumps({"run": "r", "since_ms": since_ms}).encode())
    assert (owner.run, owner.since) == ("r", shown) and shown in str(owner)


@pytest.mark.parametrize("value", [b"[" * 100_000, b"[]", b"1", b'{"run": 1, "pid": "x", "host": null}', b"\xff"])
def test_whatever_stands_in_an_owner_key_is_read(value: bytes) -> None:
    assert Owner.decode(value) == Owner("", "", "", 0, 0)


def test_names_of_blobs_in_the_quorum() -> None:
    for golden in GOLDEN["names"]:
        wanted = BlobName(*(golden[name] for name in ("topic", "partition", "first", "last", "chunks", "chunk_bytes", "id")))
        assert BlobName.parse(golden["uri"]) == wanted
        assert str(wanted) == golden["uri"]


def value(kind: bytes, text: str, content: bytes = b"") -> bytes:
    return b"\x01" + kind + len(text).to_bytes(4, "big") + text.encode() + content


def test_members_of_later_releases_are_kept() -> None:
    later = value(b"I", '{"mtime":5,"length":9,"crc32c":3808858755,"id":"x","later":{"a":1}}', b"123456789")
    node = Node.decode("/fs/p/f", later)
    assert node.length == 9
    assert node.encode() == later
    assert Node.decode("k", value(b"B", '{"mtime":1,"length":1,"crc32c":1,"blob":{"how":"new"}}')).uri == ""


@pytest.mark.parametrize(
    "spoilt",
    [
        b"",
        b"\x02" + value(b"D", '{"mtime":1}')[1:],
        value(b"X", '{"mtime":1}'),
        value(b"D", "{}"),
        value(b"D", '{"mtime"'),
        value(b"D", "[]"),
        value(b"D", '{"mtime":1}')[:-3],
        value(b"I", '{"mtime":1}'),
        value(b"B", '{"mtime":1,"length":1,"crc32c":1}'),
        value(b"I", '{"mtime":1,"length":3,"crc32c":1}', b"ab"),
        value(b"I", '{"mtime":1,"length":9,"crc32c":3808858755}', b"123456780"),
    ],
)
def test_what_is_spoilt_names_the_key(spoilt: bytes) -> None:
    with pytest.raises(InvalidInput, match="'/fs/p/f' is no file: "):
        Node.decode("/fs/p/f", spoilt)


def test_the_largest_inline_file_fits_into_a_value() -> None:
    node = Node.inline(2**53, bytes(INLINE_BYTES_MAX))
    assert len(node.encode()) <= 1 << 20
    assert Node.decode("k", node.encode()).kind is Kind.INLINE


def test_a_place_and_its_names() -> None:
    main = Location.parse("raftlake://orders/main/")
    assert str(main) == "raftlake://orders/main"
    assert main.owner_key == "/fs-owner/orders/main"
    assert main.changelog_key == "/fs-state/orders/main"
    file = main.below("state/0%/\u0001x")
    assert main.relative(file.key) == "state/0%/\u0001x"
    assert main.relative("/fs/orders/main/a%zz") == "a%zz"
    assert file.parent.parent == main.below("state")
    assert main.is_around(main)
    assert main.is_around(file)
    assert not main.is_around(Location.parse("raftlake://orders/main2"))
    root = Location.parse("raftlake://orders")
    assert root.is_root
    assert str(root) == "raftlake://orders/"
    assert root.owner_key == "/fs-owner/orders"
    assert root.below("main") == main


@pytest.mark.parametrize(
    "text",
    [
        "orders/main",
        "file:/x",
        "raftlake://",
        "raftlake:///x",
        "raftlake://a b/x",
        "raftlake://../x",
        "raftlake://p/../x",
        "raftlake://p/./x",
        "raftlake://p/\ud800",
        "raftlake://p/" + "x" * 1020,
        "raftlake://" + "p" * 65,
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Location.parse(text)
