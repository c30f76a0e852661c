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

HOT = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.READ_OFFSET, ApiKey.FIND_QUORUM}


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """EndQuorumEpoch was never spoken in this process, and nothing was imported late."""
    names = [name for name in sys.modules if name.startswith("kio.schema.end_quorum_epoch") or name in LATE]
    kept = {name: sys.modules.pop(name) for name in names}
    api.request_type.cache_clear()
    api.response_type.cache_clear()
    yield
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


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors are not listed here")
def test_an_import_takes_the_spares() -> None:
    spares.keep()
    with descriptors_left():
        for _ in load_all():
            pass
        assert spares.count == 0
    assert "kio.schema.end_quorum_epoch.v1.response" in sys.modules
