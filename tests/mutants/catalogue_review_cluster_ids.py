"""Bugs planted where a review found some: quorums whose nodes were formatted with a cluster id and without."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

IDENTITY = "raftlake.replica.voters.cluster_identity"
MEMBERSHIP = "raftlake.replica.voters.membership"
IDENTITIES = ("unit/replica/test_replica_voters_cluster_identity.py",)

REVIEW_CLUSTER_IDS = (
    mutant(
        "first-leader-makes-an-id-up-though-voters-name-one",
        "it was refused by its followers for ever",
        IDENTITY,
        "for voter in present if voter in self._claims}",
        "for voter in present if False}",
        IDENTITIES,
    ),
    mutant(
        "id-taken-of-a-fetch-that-does-not-count",
        "anybody may write an id into a Fetch of another epoch",
        IDENTITY,
        "        claims = {voter: self._claims[voter] for voter in present if",
        "        claims = {voter: self._claims[voter] for voter in role.voters if",
        IDENTITIES,
    ),
    mutant(
        "id-taken-of-a-client-that-says-it-is-a-voter",
        "a listener for clients takes no word of a node",
        IDENTITY,
        "            if isinstance(rpc, FetchRpc) and connection.origin is Origin.PEER:\n",
        "            if isinstance(rpc, FetchRpc):\n",
        IDENTITIES,
    ),
    mutant(
        "leader-without-an-id-waits-for-no-voter",
        "a majority without an id locked out the voter that has one, and was some ms slower",
        IDENTITY,
        " and led_ms < CLAIMS_WAIT_MS:\n",
        " and led_ms < 0:\n",
        IDENTITIES,
    ),
    mutant(
        "one-of-several-ids-is-taken",
        "the leader would refuse the voters of the others",
        IDENTITY,
        "        if len(ids) > 1:\n",
        "        if len(ids) > 2:\n",
        IDENTITIES,
    ),
    mutant(
        "id-of-a-formatted-quorum-stands-nowhere",
        "a node without an id learned none behind a leader that has one",
        MEMBERSHIP,
        "        if found == cluster_id or isinstance(decode_cluster(value), Refused):\n",
        "        if entry is None or found == cluster_id or isinstance(decode_cluster(value), Refused):\n",
        IDENTITIES,
    ),
    mutant(
        "follower-writes-its-id-over-another",
        "two clusters would write in turn, and nodes without an id would learn either",
        MEMBERSHIP,
        "        if not isinstance(found, Refused) and self._led_ms() < 0:\n",
        "        if False:\n",
        ("unit/replica/test_replica_voters_membership_describe.py",),
    ),
    mutant(
        "learned-id-is-tried-to-be-written-once",
        "with too many files open this process never wrote it",
        IDENTITY,
        "            self._disk.on_full(full)\n        else:\n            self._is_written_down = True\n",
        "            self._disk.on_full(full)\n        self._is_written_down = True\n",
        IDENTITIES,
    ),
    mutant(
        "learned-id-that-finds-no-room-ends-the-apply",
        "the metadata log was started anew, and the listeners behind were not told",
        IDENTITY,
        "        except DiskFull as full:\n",
        "        except BlockingIOError as full:\n",
        IDENTITIES,
    ),
    mutant(
        "learned-id-is-written-without-the-ballast",
        "on a full disk it could not be written",
        "raftlake.runtime.server",
        "            self._logs.room.retrying(lambda: write_meta(self._settings.data_dir, known))\n",
        "            write_meta(self._settings.data_dir, known)\n",
        ("unit/runtime/test_runtime_server.py",),
    ),
    mutant(
        "refused-node-says-nothing",
        "its log told of pre-votes that timed out, and of no reason",
        "raftlake.runtime.peers.network",
        'getattr(reply, "error", None) is ErrorCode.INCONSISTENT_CLUSTER_ID',
        'getattr(reply, "error", None) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED',
        ("unit/runtime/test_runtime_peers_network.py",),
    ),
    mutant(
        "each-request-of-another-cluster-is-a-line-in-the-log",
        "a peer asks again some times a second",
        IDENTITY,
        "        if key in self._told and now_ms < self._told[key][0] + TELL_INTERVAL_MS:\n",
        "        if key in self._told and now_ms < self._told[key][0]:\n",
        IDENTITIES,
    ),
    mutant(
        "nodes-of-other-clusters-without-number",
        "anybody may claim to be a node, and each number was a line and a warning",
        IDENTITY,
        " and node_id not in voters and strangers >= STRANGERS_MAX:\n",
        " and node_id not in voters and strangers > 1 << 30:\n",
        IDENTITIES,
    ),
    mutant(
        "warning-of-another-cluster-comes-and-goes",
        "between two lines of the log the health check was silent",
        IDENTITY,
        "WARNING_MS = 2 * TELL_INTERVAL_MS\n",
        "WARNING_MS = TELL_INTERVAL_MS\n",
        IDENTITIES,
    ),
)
