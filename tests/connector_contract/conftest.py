"""Both connectors in one session on one quorum: each test runs with the one in Python, and with the one in Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from connectorkit import JAVA, PYTHON, Connector, register_python
from pyspark_raftlake.jvm import find_jar
from sparkfixtures import client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raftlake import LocalQuorum

__all__ = ["client"]


@pytest.fixture(scope="session")
def both(spark: SparkSession, quorum: LocalQuorum) -> dict[str, Connector]:
    if find_jar() is None:
        pytest.fail("there is no jar: run tools/build-jar, as make test-spark does")
    register_python(spark)
    return {name: Connector(spark, quorum.bootstrap_servers, name) for name in (PYTHON, JAVA)}


@pytest.fixture(params=[PYTHON, JAVA], ids=["python", "java"])
def connector(request: pytest.FixtureRequest, both: dict[str, Connector]) -> Connector:
    return both[request.param]
