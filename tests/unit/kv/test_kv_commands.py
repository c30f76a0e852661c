"""Commands: their limits and their encoding."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode, RequestRejected, WireError
from raftlake.kv import keys
from raftlake.kv.commands import (
    ABSENT,
    ANY,
    COMPARES_MAX,
    KEY_BYTES_MAX,
    OPERATIONS_MAX,
    VALUE_BYTES_MAX,
    Compare,
    Delete,
    Put,
    Txn,
    decode,
    delete,
    encode,
    put,
)


def test_encoding_is_fixed() -> None:
    """Other nodes, and this one after an upgrade, read these very bytes."""
    txn = Txn((Compare("a", 7),), (Put("é", b"xy"), Delete("c")))
    assert encode(txn) == bytes.fromhex("01 0001 0001 61 0000000000000007 0002 01 0002 c3a9 00000002 7879 02 0001 63")


@pytest.mark.parametrize(
    "txn",
    [
        Txn((), ()),
        put("k", b""),
        put("k", b"v", if_version=ABSENT),
        delete("k", if_version=ANY),
        put("k" * KEY_BYTES_MAX, bytes(VALUE_BYTES_MAX)),
        Txn((Compare("x", 2**63 - 1), Compare("x", 5)), ()),
    ],
)
def test_round_trip(txn: Txn) -> None:
    assert decode(encode(txn)) == txn


def test_decode_takes_views() -> None:
    txn = put("k", b"v")
    decoded = decode(memoryview(bytearray(encode(txn))))
    assert decoded == txn
    assert isinstance(decoded.ops[0], Put) and isinstance(decoded.ops[0].value, bytes)


@pytest.mark.parametrize("key", ["", "k" * (KEY_BYTES_MAX + 1), "é" * (KEY_BYTES_MAX // 2 + 1), "\ud800"])
def test_bad_keys_are_rejected(key: str) -> None:
    for make in (lambda: Put(key, b""), lambda: Delete(key), lambda: Compare(key, 1)):
        with pytest.raises(RequestRejected) as caught:
            make()
        assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_large_values_are_rejected() -> None:
    with pytest.raises(RequestRejected) as caught:
        Put("k", bytes(VALUE_BYTES_MAX + 1))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", [-2, 2**63])
def test_bad_versions_are_rejected(version: int) -> None:
    with pytest.raises(RequestRejected):
        Compare("k", version)


def test_transactions_are_bounded() -> None:
    with pytest.raises(RequestRejected, match="changes a key twice"):
        Txn((), (Put("k", b"1"), Delete("k")))
    with pytest.raises(RequestRejected):
        Txn(tuple(Compare("k", 1) for _ in range(COMPARES_MAX + 1)), ())
    with pytest.raises(RequestRejected):
        Txn((), tuple(Delete(str(i)) for i in range(OPERATIONS_MAX + 1)))
    with pytest.raises(RequestRejected) as caught:
        encode(Txn((), tuple(Put(str(i), bytes(VALUE_BYTES_MAX)) for i in range(9))))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\x01",
        bytes.fromhex("02 0000 0000"),
        bytes.fromhex("01 0000 0000 00"),
        bytes.fromhex("01 0000 0001 03 0001 61"),
        bytes.fromhex("01 0000 0001 02 0002 61"),
        bytes.fromhex("01 0000 0001 02 0000"),
        bytes.fromhex("01 0000 0001 02 0001 ff"),
        bytes.fromhex("01 0000 0001 01 0001 61 00000002 61"),
        bytes.fromhex("01 0001 0001 61 fffffffffffffffe 0000"),
        bytes.fromhex("01 0000 0002 02 0001 61 02 0001 61"),
    ],
)
def test_garbage_is_a_wire_error(encoded: bytes) -> None:
    with pytest.raises(WireError):
        decode(encoded)


def test_reserved_keys() -> None:
    assert keys.is_reserved(keys.topic_key("flights")) and keys.is_reserved(keys.node_key(1)) and keys.is_reserved("/raftlake")
    assert keys.is_reserved(keys.PRODUCERS_NEXT_KEY) and keys.is_reserved(keys.CLUSTER_KEY)
    assert not keys.is_reserved("/raftlakes") and not keys.is_reserved("raftlake/topics/x")
