"""Which kraft.versions does whoever listens at an address know? One ApiVersions request on a connection of its own.

A leader asks before it takes in a new voter (KIP-853): the address that goes into the log must lead to somebody who gives
votes there, and not to the listener for clients of a node whose peers have their own. Speaks version 4, the first in which a
feature can begin at 0. Raises nothing for an address where nobody answers.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from raftlake.errors import WireError
from raftlake.ports import KraftVersions
from raftlake.raft.events import FailureReason
from raftlake.replica.config import Endpoint
from raftlake.wire.api import ApiKey, decode_response, encode_request

VERSION = 4
FEATURE = "kraft.version"
CORRELATION_ID = 1
#: More than any list of APIs takes.
ANSWER_BYTES_MAX = 1 << 20


async def ask_kraft_versions(address: Endpoint, client_id: str, timeout_seconds: float) -> KraftVersions | FailureReason:
    """The first and the last one; (0, 0) where the answer does not speak of the feature."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return _kraft_versions(await _ask(address, client_id))
    except TimeoutError:
        return FailureReason.TIMED_OUT
    except (OSError, EOFError, WireError, ValueError):
        # The last one: a host that is no name.
        return FailureReason.DISCONNECTED


async def _ask(address: Endpoint, client_id: str) -> bytes:
    schema: Any = importlib.import_module(f"kio.schema.api_versions.v{VERSION}.request")
    request = schema.ApiVersionsRequest(client_software_name="raftlake", client_software_version="0")
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.writelines(encode_request(ApiKey.API_VERSIONS, VERSION, CORRELATION_ID, client_id, request))
        size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise WireError(f"an answer of {size} bytes")
        return await reader.readexactly(size)
    finally:
        writer.close()


def _kraft_versions(frame: bytes) -> KraftVersions:
    correlation_id, message = decode_response(ApiKey.API_VERSIONS, VERSION, frame)
    answer: Any = message
    if correlation_id != CORRELATION_ID:
        raise WireError(f"answer {correlation_id} to request {CORRELATION_ID}")
    for feature in getattr(answer, "supported_features", ()):
        if feature.name == FEATURE:
            if all(api.api_key != ApiKey.VOTE for api in answer.api_keys):
                raise WireError("a listener for clients: replicas cannot ask for votes there")
            return int(feature.min_version), int(feature.max_version)
    return 0, 0
