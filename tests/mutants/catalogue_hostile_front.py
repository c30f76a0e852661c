"""Planted bugs in what keeps strangers at the listeners from stopping a node."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

APIS = "raftlake.runtime.listener.apis"
CODEC = "raftlake.runtime.peers.codec"

ADMISSION = "raftlake.runtime.admission"
ADDRESS = "raftlake.runtime.peers.address"

LISTENERS = ("unit/runtime/test_runtime_listener_apis.py",)
HOSTS = "raftlake.runtime.http.hosts"

PAGE = "raftlake.runtime.http.metrics_page"

ERRORS = "raftlake.errors"

PLACES = ("unit/runtime/test_runtime_admission.py",)
SCRAPES = ("unit/runtime/test_runtime_http_metrics_page.py",)
TOLD = ("unit/house/test_texts_for_clients.py",)
PAGES = ("unit/runtime/test_runtime_http_hosts.py",)
ADDRESSES = ("unit/runtime/test_runtime_peers_address.py",)
TOLD_ADDRESSES = ("unit/replica/test_replica_clients_addresses.py",)


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


CLIENTS_ADDRESSES = (
    mutant(
        "clients-sent-to-the-listener-of-peers",
        "an append failed for good at a node that had not told its address yet",
        "raftlake.replica.voters.membership",
        "        told = self._quorum.addresses() if config.is_opaque else self._listeners",
        "        told = {**self._quorum.addresses(), **self._listeners}",
        TOLD_ADDRESSES,
    ),
    mutant(
        "leader-named-that-clients-cannot-find",
        "Kafka: LEADER_NOT_AVAILABLE where the leader has no endpoint at this listener",
        "raftlake.replica.hosting.first_leaders",
        "    if partition is None or partition.core.leader_id not in nodes:\n",
        "    if partition is None:\n",
        TOLD_ADDRESSES,
    ),
    mutant(
        "clients-port-described-as-a-controller-s",
        "DescribeQuorum: Nodes are the voter set's listeners",
        "raftlake.replica.voters.describe",
        "in self._quorum.addresses().items()",
        "in {**self._quorum.addresses(), self._engine.config.node_id: self._engine.config.listener}.items()",
        TOLD_ADDRESSES,
    ),
    mutant(
        "addresses-told-with-the-next-round-of-the-house",
        "clients of a new quorum wait for them",
        "raftlake.replica.voters.membership",
        "        if not self._has_told():\n            # Clients",
        "        if False:\n            # Clients",
        TOLD_ADDRESSES,
    ),
)

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
        "raftlake.runtime.peers.endpoint_probe",
        "            if all(api.api_key != ApiKey.VOTE for api in answer.api_keys):",
        "            if False:",
        ("unit/runtime/test_runtime_peers_endpoint_probe.py",),
    ),
)

CONNECTIONS = (
    mutant(
        "any-number-is-a-nodes",
        "2,060 connections that said they were peers kept all others out",
        ADMISSION,
        "        if standing is Standing.CLIENT or is_full or",
        "        if is_full or",
        PLACES,
    ),
    mutant(
        "a-nodes-places-without-end",
        "who bears a voter's number is not the voter",
        ADMISSION,
        "        is_full = len(others) >= PLACES_PER_NODE",
        "        is_full = False",
        PLACES,
    ),
    mutant(
        "stranger-takes-the-place-of-the-voter",
        "who comes from where the voter lives goes before who does not",
        ADMISSION,
        "        if is_at_home(guest) >= is_at_home(last):",
        "        if True:",
        PLACES,
    ),
    mutant(
        "silent-connections-keep-the-voter-waiting",
        "a node speaks at once: the longest silent has to go",
        ADMISSION,
        "            self._dismiss(next(iter(row)), refusal)",
        "            self._dismiss(next(reversed(row)), refusal)",
        PLACES,
    ),
    mutant(
        "address-counted-twice-over-ipv6",
        "an IPv4 address has a second spelling on an IPv6 socket",
        ADMISSION,
        "return is_spared or self._counts.get(plain_address(host), 0) < self._max",
        "return is_spared or self._counts.get(host, 0) < self._max",
        PLACES,
    ),
    mutant(
        "address-never-counted-down",
        "a client that comes and goes is not many clients",
        ADMISSION,
        "        count = self._counts.pop(host) - 1\n",
        "        count = self._counts.pop(host)\n",
        PLACES,
    ),
    mutant(
        "http-connections-of-one-address-without-end",
        "max.connections.per.ip holds for each listener",
        "raftlake.runtime.http.front",
        "        if not self._addresses.has_room(connection.host):",
        "        if False:",
        ("unit/runtime/test_runtime_http_front.py",),
    ),
    mutant(
        "claimed-node-never-idles-out",
        "a client id is a claim that anybody can make",
        "raftlake.runtime.listener.connection",
        "            self.claim(parse_peer_client_id(header.client_id))\n",
        "            self.is_peer = parse_peer_client_id(header.client_id) is not None\n",
        ("unit/runtime/test_runtime_listener_bounds.py",),
    ),
    mutant(
        "every-refusal-in-the-log",
        "who is refused comes again at once, and must not fill the disk",
        "raftlake.runtime.refusal_log",
        "            self._untold += 1\n            return False\n",
        "            self._untold += 1\n",
        ("unit/runtime/test_runtime_refusal_log.py",),
    ),
)

PEER_ADDRESSES = (
    mutant(
        "one-allowed-address-allows-all-of-a-name",
        "DNS rebinding: the address that is connected to has to be looked at",
        ADDRESS,
        "        return allowed\n",
        "        return found\n",
        ADDRESSES,
    ),
    mutant(
        "mapped-address-is-no-ipv4-address",
        "an IPv4 address has a second spelling",
        ADDRESS,
        "        plain = mapped or parsed\n",
        "        plain = parsed\n",
        ADDRESSES,
    ),
    mutant(
        "closed-port-answered-at-once",
        "SSRF: the time that a failure takes tells what is there",
        "raftlake.runtime.peers.network",
        "            await asyncio.sleep(max(0.0, gives_up_at - self.loop.time()))\n",
        "",
        ADDRESSES,
    ),
    mutant(
        "caller-told-what-the-probe-saw",
        "SSRF: who names an address is told nothing of what is there",
        "raftlake.replica.voters.changes",
        "done(_not_now(core, NOT_CONFIRMED))",
        'done(_not_now(core, f"{address}: {answer.value}"))',
        ("unit/replica/test_replica_apis_voters_changes.py",),
    ),
)

BROWSERS = (
    mutant(
        "any-host-name-served",
        "CVE-2018-5702, etcd's CVE-2018-1098: DNS rebinding makes a site's name lead to a node",
        HOSTS,
        '        if not self.allows(parts["host"]):',
        "        if False:",
        PAGES,
    ),
    mutant(
        "host-name-known-by-its-beginning",
        "DNS rebinding: anybody owns names that begin like ours",
        HOSTS,
        'name.endswith("." + LOOPBACK)',
        'name.startswith(LOOPBACK + ".") or "localhost" in name',
        PAGES,
    ),
    mutant(
        "origin-compared-without-its-port",
        "another program of the same machine is another site",
        HOSTS,
        '    return (named["port"] or default) == (host["port"] or default)',
        "    return True",
        PAGES,
    ),
    mutant(
        "page-of-another-site-served",
        "a POST of text/plain needs no leave, whichever site's page sends it",
        HOSTS,
        "        if origin is not None and not _is_same(origin.lower(), parts):",
        '        if origin == "null":',
        PAGES,
    ),
    mutant(
        "watch-served-to-any-page",
        "what answers by itself has to look at Host and Origin by itself",
        "raftlake.runtime.http.front",
        "        try:\n            self._hosts.check(request)\n            await self._watchers",
        "        try:\n            await self._watchers",
        PAGES,
    ),
    mutant(
        "json-seen-in-a-parameter-of-text",
        "a browser sends text/plain with any parameter unasked",
        HOSTS,
        '    if given.partition(";")[0].strip().lower().encode() != JSON:',
        "    if JSON.decode() not in given.lower():",
        PAGES,
    ),
    mutant(
        "old-http-writes-without-a-host",
        "HTTP/1.0 has no Host, and is no browser's: it may read",
        HOSTS,
        'if request.version != "1.0" or request.method not in _READING or origin is not None:',
        'if request.version != "1.0":',
        PAGES,
    ),
)

METRICS = (
    mutant(
        "metrics-built-in-one-piece",
        "1.3 s of the loop for 10,000 partitions at each scrape",
        PAGE,
        "            _write([(group, partition) for group, partition in piece if shows_all or group == own], families)\n"
        "            yield\n",
        "            _write([(group, partition) for group, partition in piece if shows_all or group == own], families)\n",
        SCRAPES,
    ),
    mutant(
        "every-scrape-builds-a-page",
        "concurrent scrapes share one",
        PAGE,
        "        if len(self._waiting) == 1:\n",
        "        if self._waiting:\n",
        SCRAPES,
    ),
    mutant(
        "page-of-metrics-kept-for-good",
        "a page is kept for a second",
        PAGE,
        "if self._page is not None and self._now_us() - self._built_us < KEPT_US:",
        "if self._page is not None:",
        SCRAPES,
    ),
    mutant(
        "series-of-some-partitions",
        "above the bound no partition has series of its own",
        PAGE,
        "for group, _ in hosted[: self._partitions_max + 2]) <= self._partitions_max",
        "for group, _ in hosted[: self._partitions_max]) <= self._partitions_max",
        SCRAPES,
    ),
    mutant(
        "health-where-the-keys-are-filled",
        "slow clients of one listener cannot starve the other",
        "raftlake.runtime.http_fronts",
        'await self._add("http", Serves.ALL if for_ops is None else Serves.DATA, listening)',
        'await self._add("http", Serves.DATA, listening)',
        ("unit/runtime/test_runtime_server.py",),
    ),
    mutant(
        "keys-served-at-the-listener-of-operations",
        "http.ops.listener changes nothing",
        "raftlake.runtime.http.front",
        "            if self._serves is Serves.OPS:\n",
        "            if False:\n",
        ("unit/runtime/test_runtime_http_fronts.py",),
    ),
)

TEXTS = (
    mutant(
        "error-text-without-end",
        "a topic's name of 32,000 characters, told back, does not fit into the answer",
        ERRORS,
        "return text if len(text) <= CLIENT_TEXT_MAX else",
        "return text if True else",
        TOLD,
    ),
    mutant(
        "paths-told-to-clients",
        "how this machine's disks are laid out is nobody's business",
        ERRORS,
        '    text = _PATH.sub(lambda path: path["last"] or "a directory", text[: 10 * CLIENT_TEXT_MAX])',
        "    text = text[: 10 * CLIENT_TEXT_MAX]",
        TOLD,
    ),
    mutant(
        "health-tells-the-data-directory",
        "a directory's name may hold blanks, behind which no rule sees a path",
        "raftlake.runtime.http.ops",
        "for_clients(reason, self.root)",
        "for_clients(reason)",
        TOLD,
    ),
    mutant(
        "problem-over-http-told-in-full",
        "a refusal repeats what the client sent",
        "raftlake.runtime.http.base",
        'json_bytes({"error": for_clients(str(self)), **self.facts})',
        'json_bytes({"error": str(self), **self.facts})',
        TOLD,
    ),
    mutant(
        "refused-batch-told-in-full",
        "Produce has a codec of its own, and so its answers",
        "raftlake.replica.apis.produce",
        "        result.error_message = for_clients(result.error_message)\n",
        "        pass\n",
        TOLD,
    ),
)

HOSTILE_FRONT = (*CLIENTS_ADDRESSES, *PEERS_LISTENER, *CONNECTIONS, *PEER_ADDRESSES, *BROWSERS, *METRICS, *TEXTS)
