"""Planted bugs in what keeps strangers at the listeners from stopping a node."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

APIS = "raftlake.runtime.listener_apis"
CODEC = "raftlake.runtime.peer_codec"

LISTENERS = ("unit/test_runtime_listener_apis.py",)


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


PEERS_LISTENER = (
    mutant(
        "votes-taken-at-the-clients-listener",
        "Kafka: a broker's listener serves no controller RPC",
        APIS,
        "    if not use.takes_peers and (header.api_key in REPLICAS_ONLY or is_from_replica(message)):",
        "    if not use.takes_peers and is_from_replica(message):",
        LISTENERS,
    ),
    mutant(
        "replica-fetch-taken-at-the-clients-listener",
        "a forged Fetch acknowledges records for a follower",
        APIS,
        "(header.api_key in REPLICAS_ONLY or is_from_replica(message)):",
        "header.api_key in REPLICAS_ONLY:",
        LISTENERS,
    ),
    mutant(
        "proposals-taken-at-the-clients-listener",
        "a node's client id is a claim that anybody can make",
        CODEC,
        "        asking = parse_peer_client_id(header.client_id) if from_peers else None",
        "        asking = parse_peer_client_id(header.client_id)",
        LISTENERS,
    ),
    mutant(
        "replicas-apis-told-to-clients",
        "ApiVersions names what a listener serves",
        APIS,
        "ListenerUse.CLIENTS: [api for api in _PUBLIC if api.key not in REPLICAS_ONLY],",
        "ListenerUse.CLIENTS: _PUBLIC,",
        LISTENERS,
    ),
    mutant(
        "produce-taken-at-the-peers-listener",
        "Kafka: a controller's listener serves no data",
        APIS,
        "    if use is ListenerUse.PEERS and header.api_key not in AT_CONTROLLERS:",
        "    if False:",
        LISTENERS,
    ),
    mutant(
        "voter-added-at-its-listener-for-clients",
        "KIP-853: the address of a new voter must lead to somebody who gives votes there",
        "raftlake.runtime.endpoint_probe",
        "            if all(api.api_key != ApiKey.VOTE for api in answer.api_keys):",
        "            if False:",
        ("unit/test_runtime_endpoint_probe.py",),
    ),
)

HOSTILE_FRONT = PEERS_LISTENER
