"""Which kraft.versions does the node at an address know? One ApiVersions request on a connection of its own.

A leader asks before it takes in a new voter (KIP-853): the address that goes into the log must lead to a listener that gives
votes, and not to one for clients. Speaks version 4, the first in which a feature can begin at 0. Raises nothing for an address
without an answer.
"""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass
from typing import Any

from raftlake.errors import WireError
from raftlake.ports.driver import KraftVersions
from raftlake.raft.events import FailureReason
from raftlake.replica.config import Endpoint
from raftlake.runtime.peers.address import PeerAddresses, connect_to_any
from raftlake.wire.api import ApiKey, decode_response, encode_request

VERSION = 4
FEATURE = "kraft.version"
CORRELATION_ID = 1
#: More than any list of APIs takes.
ANSWER_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """No node that can vote answers; `detail` is for the log."""

    reason: FailureReason
    detail: str


async def ask_kraft_versions(
    address: Endpoint, client_id: str, timeout_seconds: float, allowed: PeerAddresses
) -> KraftVersions | ProbeFailed:
    """The first and the last one; (0, 0) where the answer does not speak of the feature."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return _kraft_versions(await _ask(address, client_id, allowed))
    except TimeoutError:
        return ProbeFailed(FailureReason.TIMED_OUT, "no answer in time")
    except (OSError, EOFError, WireError) as error:
        return ProbeFailed(FailureReason.DISCONNECTED, str(error))


async def _ask(address: Endpoint, client_id: str, allowed: PeerAddresses) -> bytes:
    schema: Any = importlib.import_module(f"kio.schema.api_versions.v{VERSION}.request")
    request = schema.ApiVersionsRequest(client_software_name="raftlake", client_software_version="0")
    found = await allowed.resolve(address)
    reader, writer = await connect_to_any(found, lambda at: asyncio.open_connection(at, address.port))
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
