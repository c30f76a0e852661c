"""The settings of one node: from text to checked values.

Reading order:

- `names`: the table of names and ranges, Kafka's synonyms, and the three sources of values.
- `properties`: the java properties syntax, read, written and edited.
- `parsing`: the text of one setting to a value: numbers, endpoints, listeners, voters.
- `tier`: where the remote tier is.
- `settings`: `Settings` and `load_settings`: the meaning of each setting, the defaults, and the relations between settings.

Callers: `cli/node.py`, `cli/recover.py` and `runtime/__main__.py` call `load_settings`. `runtime/server.py` takes a `Settings`.
`local_settings` checks with `load_settings` what it writes with `properties`. `cli` and `runtime/format.py` use `parsing`. The
package imports values of `raft` and `replica`, and the classes of `runtime` that settings build, such as `AllowedHosts`.

Invariants:

- The sources are the file, then the environment, then `--set`. A later source wins.
- An unknown name in the file or in `--set` is refused, with a suggestion where a known name is near.
- A setting that cannot be used is a `ConfigError` that names the key and the accepted values.
- The package reads the environment only through the mapping that the caller passes.
- `Settings.node_config` is the only way from settings to the driver: `replica` sees a `NodeConfig` and no setting.
"""
