"""Planted bugs in the directories of a local quorum: starts that were interrupted, settings that were lost, lost nodes."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

DIRECTORIES = "raftlake.local_directories"
INTERRUPTED = ("unit/local/test_local_directories_interrupted.py",)

HOSTILE_LOCAL = (
    mutant(
        "interrupted-local-quorum-counted-by-its-directories",
        "Ctrl-C amid the first start left `DIR holds a quorum of 1 nodes; it cannot be started with 3` for good",
        DIRECTORIES,
        "        members.update(*(each.ports for each in found.values()))\n",
        "",
        INTERRUPTED,
    ),
    mutant(
        "lost-node-of-a-local-quorum-made-anew",
        "a node beside others with data began empty, without the votes that it had given",
        DIRECTORIES,
        "    if not any(each.has_run for each in found.values()):\n        return\n",
        "    if True:\n        return\n",
        INTERRUPTED,
    ),
    mutant(
        "settings-of-a-lost-local-node-are-a-node",
        "a directory that was emptied but for its settings began anew beside nodes with data",
        DIRECTORIES,
        "not (found[node_id].is_formatted or found[node_id].has_run)",
        "not (found[node_id].is_formatted or found[node_id].has_settings)",
        INTERRUPTED,
    ),
    mutant(
        "torn-settings-of-a-local-node-end-its-quorum",
        "a node.properties that is no text kept a quorum with data from starting",
        DIRECTORIES,
        "    except (ConfigError, UnicodeDecodeError):\n        return {}\n\n\ndef _voter_ports",
        "    except ZeroDivisionError:\n        return {}\n\n\ndef _voter_ports",
        INTERRUPTED,
    ),
    mutant(
        "ports-of-local-nodes-from-files-of-two-starts",
        "a move to other ports that was interrupted left two nodes with one HTTP port",
        DIRECTORIES,
        "each.http_port not in {*taken, *kept.values()}",
        "each.http_port not in taken",
        INTERRUPTED,
    ),
    mutant(
        "equal-settings-of-a-local-node-written-again",
        "a start on a full disk, or one that is interrupted, should have nothing to lose",
        DIRECTORIES,
        "    if read_file(node.properties) != data:\n",
        "    if data:\n",
        INTERRUPTED,
    ),
    mutant(
        "settings-of-a-local-node-cut-before-they-are-written",
        "Ctrl-C between the two left an empty node.properties",
        DIRECTORIES,
        "        replace_file(node.properties, data)\n",
        "        node.properties.touch(0o600)\n        node.properties.write_bytes(data)\n",
        INTERRUPTED,
    ),
    mutant(
        "interrupted-format-not-repeated",
        "a kill amid `raftlake format` left meta.properties.tmp, over which no format went",
        "raftlake.storage.meta",
        "not name.removesuffix(TEMPORARY_SUFFIX).endswith(",
        "not name.endswith(",
        ("unit/storage/test_storage_meta.py", *INTERRUPTED),
    ),
)
