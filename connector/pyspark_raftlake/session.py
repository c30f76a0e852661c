"""`configure`: names the quorum once for a whole Spark session. `attach`: `raftlake://` for one that runs already.

The jar of this package brings the connector in Java, checkpoints at `raftlake://`, which need the HTTP fronts of the nodes, and
topics as tables. Without the jar the connector in Python answers. Spark hands it filters only where a setting says so: filters
then leave out files of history. Spark's default sizes of Arrow batches are as fast as larger ones.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark_raftlake.jvm import JARS_SETTING, checkpoint_settings, find_jar, http_servers, left_to, require_jar
from pyspark_raftlake.option_names import PUSHDOWN_SETTING, SERVERS_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

#: In front of the settings that Spark hands to Hadoop; those of a running session it hands over by their own names.
_OF_HADOOP = "spark.hadoop."
#: Where Spark is told which Python its workers run.
PYTHON_ENVIRONMENT = "PYSPARK_PYTHON"
PYTHON_SETTING = "spark.pyspark.python"
NO_JAR = (
    "raftlake: the jar was not built here, so the connector in Python answers, and there is no raftlake:// and no table of a "
    "topic; in a clone `make jar` builds it\n"
)


def configure(builder: SparkSession.Builder, quorum: str, http: str | None = None) -> SparkSession.Builder:
    """Make `quorum`, `"host:port,host:port"`, the default of `kafka.bootstrap.servers`, and `raftlake` the connector in Java;
    returns the builder for `getOrCreate()`. Raises ConfigError when it is not a list of addresses.

    The default reaches Spark's Python processes through the environment of the driver that this process starts. So it has no
    effect on a session that already runs, nor on a driver on another machine: set RAFTLAKE_BOOTSTRAP_SERVERS there.

    Spark's Python workers run this process's Python, unless PYSPARK_PYTHON or `spark.pyspark.python` names another one. Spark
    itself would take `python3` of the PATH, and not find the format there.

    `raftlake://` becomes a file system for checkpoints, and `raftlake.<topic>` a table: the jar is added to `spark.jars`.
    `http` names the nodes' HTTP fronts, "host:port,host:port"; without it the quorum is asked for them, and RaftlakeError is
    raised where it does not answer. What the builder has for the state of queries, such as another `providerClass`, is kept. A
    source tree whose jar was not built does without all of this; with `http` given, that is a ConfigError. What was set is told
    on standard error, and so is a missing jar.
    """
    from raftlake.client.types import parse_servers

    parse_servers(quorum)
    before: dict[str, str] = getattr(builder, "_options", {})
    settings = {PUSHDOWN_SETTING: "true", **_python(before)}
    jar = find_jar() if http is None else require_jar()
    if jar is not None:
        if http is not None:
            parse_servers(http)
        of_jar = checkpoint_settings(jar, quorum, http or http_servers(quorum), str(before.get(JARS_SETTING, "")))
        left = left_to(before)
        settings |= {name: value for name, value in of_jar.items() if name not in left}
    # Nothing is set where the quorum does not answer.
    os.environ[SERVERS_ENVIRONMENT] = quorum
    for name, value in settings.items():
        builder = builder.config(name, value)
    told = "".join(f"\n  {name}={value}" for name, value in sorted(settings.items()))
    sys.stderr.write(f"raftlake: settings of this Spark session:{told}\n")
    if jar is None:
        sys.stderr.write(NO_JAR)
    return builder


def attach(spark: SparkSession, quorum: str, http: str | None = None) -> SparkSession:
    """Make `raftlake://` a place for checkpoints of a session that runs already, as of a notebook; returns the session.

    The jar goes to driver and executors by SQL `ADD JAR`. `quorum` and `http` are those of `configure`. The settings are
    of this session alone: call it again for a `newSession()`. Start queries from the thread that called it, since Spark shows
    the jar to that thread's queries. Raises ConfigError for what is no list of addresses, and where the jar was not built;
    RaftlakeError where the quorum is asked and does not answer.
    """
    from raftlake.client.types import parse_servers

    parse_servers(quorum)
    jar = require_jar()
    if http is not None:
        parse_servers(http)
    settings = checkpoint_settings(jar, quorum, http or http_servers(quorum))
    if str(jar) not in spark.sparkContext.getConf().get(JARS_SETTING, "").split(","):
        spark.sql(f"ADD JAR '{jar}'")
    for name, value in settings.items():
        if name != JARS_SETTING:
            spark.conf.set(name.removeprefix(_OF_HADOOP), value)
    return spark


def _python(before: Mapping[str, str]) -> dict[str, str]:
    """Name the Python of the workers where nobody has: the JVM reads the environment, other machines the setting."""
    if os.environ.get(PYTHON_ENVIRONMENT) or before.get(PYTHON_SETTING) or not sys.executable:
        return {}
    os.environ[PYTHON_ENVIRONMENT] = sys.executable
    return {PYTHON_SETTING: sys.executable}
