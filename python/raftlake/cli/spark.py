"""`raftlake spark-conf`: the settings that `pyspark_raftlake.configure` makes, for spark-submit and spark-defaults.conf.

The settings themselves are `pyspark_raftlake.jvm`'s. A host without the connector is told what to install.
"""

from __future__ import annotations

from typing import Annotated

import typer

from raftlake.cli.output import BOOTSTRAP_DEFAULT, AsJson, BootstrapServer, print_json
from raftlake.errors import ConfigError


def spark_conf(
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    http: Annotated[
        str | None, typer.Option("--http", metavar="H:P,H:P", help="The nodes' HTTP fronts (default: asked of the quorum).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the settings that Spark needs for checkpoints at raftlake://, a line each: `spark-submit --properties-file`."""
    settings = settings_of(bootstrap_server, http)
    if as_json:
        print_json(settings)
        return
    for name, value in settings.items():
        print(f"{name}={value}")


def settings_of(bootstrap_server: str, http: str | None) -> dict[str, str]:
    """ConfigError where the connector or its jar is not there, or an address is none."""
    from raftlake.client.types import parse_servers

    try:
        from pyspark_raftlake.jvm import checkpoint_settings, http_servers, require_jar
        from pyspark_raftlake.option_names import PUSHDOWN_SETTING
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed here; pip install 'raftlake[spark]' brings the connector") from error
    jar = require_jar()
    parse_servers(bootstrap_server)
    if http is not None:
        parse_servers(http)
    settings = checkpoint_settings(jar, bootstrap_server, http or http_servers(bootstrap_server))
    return {**settings, PUSHDOWN_SETTING: "true"}
