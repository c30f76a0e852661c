"""Bugs planted where a review found some: hosts that clients name, and a thread that cannot start."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

NETWORK = "raftlake.runtime.peers.network"
ADDRESSES = ("unit/runtime/test_runtime_peers_address.py",)

REVIEW_RUNTIME = (
    mutant(
        "address-that-cannot-be-read-is-an-error",
        "AddRaftVoter with a host of an odd spelling ended each leader that it came to",
        "raftlake.runtime.peers.address",
        "            # What cannot be read cannot be compared.\n            return False\n",
        "            raise\n",
        ADDRESSES,
    ),
    mutant(
        "unknown-error-of-a-probe-ends-the-node",
        "anybody may name an address, and be there",
        NETWORK,
        "        except Exception as error:  # noqa: BLE001\n            # Anybody may name an address",
        "        except OSError as error:\n            # Anybody may name an address",
        ADDRESSES,
    ),
    mutant(
        "unknown-error-of-a-connection-leaves-requests-waiting",
        "they waited for their deadlines, and no back-off began",
        NETWORK,
        "        except Exception as error:  # noqa: BLE001\n            self._network.note_bug(",
        "        except EOFError as error:\n            self._network.note_bug(",
        ADDRESSES,
    ),
    mutant(
        "ipv4-address-keeps-its-scope",
        "what follows % is no part of an address",
        "raftlake.runtime.admission",
        '    host = host.partition("%")[0]\n    return host.removeprefix("::ffff:") if "." in host else host\n',
        '    return host.removeprefix("::ffff:") if "." in host else host.partition("%")[0]\n',
        ("unit/runtime/test_runtime_admission.py",),
    ),
    mutant(
        "thread-for-long-work-starts-with-the-first-job",
        "where it could not start, a producer's batch was never answered, and the second such job stopped the line",
        "raftlake.runtime.aside",
        "            self._pool.submit(lambda: None)\n",
        "            pass\n",
        ("unit/runtime/test_runtime_aside.py",),
    ),
)
