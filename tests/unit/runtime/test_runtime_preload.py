"""What a node would import while it runs is imported at its start, descriptors or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from descriptorkit import descriptors_left
from raftlake.runtime.preload import LATE, load_all
from raftlake.storage.descriptors import spares
from raftlake.wire import api
from raftlake.wire.api import API_TABLE, ApiKey, cold_messages

HOT = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.READ_OFFSET,
    ApiKey.FIND_QUORUM,
    ApiKey.WRITE_MARKERS,
}


SELDOM = "kio.schema.end_quorum_epoch"


@pytest.fixture(params=["messages", "standard library"])
def forgotten(request: pytest.FixtureRequest) -> Iterator[str]:
    """A module that this process has not imported: a message that no client has sent, or one that is imported late."""
    of_messages = request.param == "messages"
    names = [name for name in sys.modules if (name.startswith(SELDOM) if of_messages else name in LATE)]
    kept = {name: sys.modules.pop(name) for name in names}
    api.request_type.cache_clear()
    api.response_type.cache_clear()
    yield f"{SELDOM}.v1.response" if of_messages else LATE[0]
    sys.modules.update(kept)
    api.request_type.cache_clear()
    api.response_type.cache_clear()


def test_every_version_of_every_message_is_imported_a_little_at_a_time() -> None:
    steps = sum(1 for _ in load_all())
    versions = sum(each.version_max - each.version_min + 1 for each in API_TABLE.values() if each.key not in HOT)
    assert steps == len(list(cold_messages())) + len(LATE) == 2 * versions + len(LATE)
    for each in API_TABLE.values():
        if each.key not in HOT:
            for version in range(each.version_min, each.version_max + 1):
                for kind in (api.request_type(each.key, version), api.response_type(each.key, version)):
                    assert kind.__module__ in sys.modules and f".v{version}." in kind.__module__
    assert "encodings.idna" in sys.modules


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors are not listed here")
def test_an_import_takes_the_spares(forgotten: str) -> None:
    spares.keep()
    with descriptors_left():
        for _ in load_all():
            pass
        assert spares.count == 0
    assert forgotten in sys.modules
