"""Planted bugs in the directories of a local quorum: starts that were interrupted, settings that were lost, lost nodes.

`LOCAL_SETTINGS`: settings that its owner chose or wrote by hand, and that went without a word; connections that
a start is short of.
"""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

DIRECTORIES = "raftlake.local_directories"
INTERRUPTED = ("unit/local/test_local_directories_interrupted.py",)
SETTINGS = "raftlake.local_settings"
KEPT = ("unit/local/test_local_settings.py",)

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
        SETTINGS,
        "    except (ConfigError, UnicodeDecodeError) as error:\n",
        "    except ZeroDivisionError as error:\n",
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

LOCAL_SETTINGS = (
    mutant(
        "settings-of-a-local-quorum-forgotten-at-its-next-start",
        "a tier that was switched on once was off after a restart, and what was written by hand was overwritten",
        SETTINGS,
        '    text = "" if file is None else file.text\n',
        '    text = ""\n',
        KEPT,
    ),
    mutant(
        "wrong-setting-of-a-local-quorum-kept",
        "a value that no node takes was written into all files, and each later start failed",
        SETTINGS,
        "        load_settings(path, overrides=overrides)\n",
        "        pass\n",
        KEPT,
    ),
    mutant(
        "empty-setting-of-a-local-quorum-written-down",
        "a setting that was taken out left an empty line in each file",
        SETTINGS,
        "given.value or None for",
        "given.value for",
        KEPT,
    ),
    mutant(
        "own-setting-of-a-local-quorum-chosen-in-kafkas-spelling",
        "`--set log.dir=...` gave all nodes one directory",
        SETTINGS,
        "        if name in OWN:\n            raise",
        "        if given.spelling in OWN:\n            raise",
        KEPT,
    ),
    mutant(
        "two-spellings-of-one-setting-in-a-local-file",
        "`--set retention.ms=...` beside a line log.retention.ms left a file that contradicts itself",
        SETTINGS,
        "    spelled = {spelling: canonical_name(spelling) for",
        "    spelled = {spelling: spelling for",
        KEPT,
    ),
    mutant(
        "unfit-setting-in-a-local-file-accepted",
        "http.ops.listener in a node.properties ended in `was not ready after 30 s`",
        SETTINGS,
        '        _require_fit(name, given, f" in {given.source}")\n',
        "        pass\n",
        KEPT,
    ),
    mutant(
        "own-setting-of-a-local-node-replaced-without-a-word",
        "a listener that was changed by hand was changed back, and nobody was told",
        SETTINGS,
        'not in ("", own[name], left.get(name))]',
        'not in (file.values.get(name, ""),)]',
        KEPT,
    ),
    mutant(
        "move-of-a-local-quorum-told-as-a-change-by-hand",
        "`--port` printed nine lines about what it had been asked for",
        SETTINGS,
        'not in ("", own[name], left.get(name))]',
        'not in ("", own[name])]',
        KEPT,
    ),
    mutant(
        "tier-on-one-local-node-alone-not-told",
        "a tier.uri in one node.properties copied the partitions of one leader, and nobody was told",
        SETTINGS,
        "for values in of_nodes}) > 1)",
        "for values in of_nodes}) > 2)",
        KEPT,
    ),
    mutant(
        "settings-in-the-environment-of-a-local-quorum-ignored-without-a-word",
        "RAFTLAKE_TIER_URI had no effect, and nobody was told",
        SETTINGS,
        '    names = ", ".join(variables(environ))\n',
        '    names = ""\n',
        KEPT,
    ),
    mutant(
        "lost-file-of-a-local-node-made-anew-without-the-settings-of-the-others",
        "a node whose file was lost came back without the tier that the others have",
        DIRECTORIES,
        "file.text else spare, own[node_id]",
        "file.text else None, own[node_id]",
        KEPT,
    ),
    mutant(
        "slip-in-a-local-file-costs-its-other-lines",
        "a tier.uri that was written twice left a quorum of one node without its tier",
        SETTINGS,
        "        if _names_settings(data):\n",
        "        if not data:\n",
        KEPT,
    ),
    mutant(
        "damaged-local-file-thrown-away",
        "what a damaged node.properties had held was gone, and could not be compared",
        DIRECTORIES,
        "        replace_file(node.directory / DAMAGED_FILE, file.data)\n",
        "        pass\n",
        KEPT,
    ),
    mutant(
        "damaged-local-file-taken-for-data",
        "a quorum that never ran could not be started with another number of nodes",
        DIRECTORIES,
        '"node.damaged.properties"',
        '"node.properties.damaged"',
        KEPT,
    ),
    mutant(
        "edited-properties-join-two-lines",
        "a file whose last line ends in a backslash took the next setting for its continuation",
        "raftlake.runtime.settings.properties",
        "    if lines and _ends_in_escape(lines[-1]):\n",
        "    if lines and False:\n",
        ("unit/runtime/test_runtime_settings_properties.py",),
    ),
    mutant(
        "edited-properties-written-whole",
        "an edit of one value lost the form of all other lines of the file",
        "raftlake.runtime.settings.properties",
        '        if key in changes and _unescape(line[value_start:], "") != changes[key]:\n',
        "        if key in changes:\n",
        ("unit/runtime/test_runtime_settings_properties.py",),
    ),
    mutant(
        "few-connections-counted-from-the-soft-limit",
        "a shell with the usual soft limit of 1,024 was told of a shortage that a node does not have",
        SETTINGS,
        "    _, hard = resource.getrlimit",
        "    hard, _ = resource.getrlimit",
        KEPT,
    ),
    mutant(
        "few-connections-end-a-local-start",
        "the reason why a node does not start is in its own words alone",
        SETTINGS,
        "        return shortage(load_settings(properties), hard)\n    except ConfigError:",
        "        return shortage(load_settings(properties), hard)\n    except ZeroDivisionError:",
        KEPT,
    ),
    mutant(
        "few-connections-told-of-what-was-not-asked",
        "a node with as many connections as its settings say was called short of them",
        "raftlake.runtime.descriptor_shares",
        "    if shares.connections == settings.connections_max:\n",
        "    if shares.connections == 2_000:\n",
        KEPT,
    ),
)
