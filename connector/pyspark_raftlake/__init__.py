"""raftlake's Spark connector: `format("raftlake")` for read, readStream, write and writeStream.

Spark finds the format by the name of this package (`pyspark_*`) and by `DefaultSource`; nothing has to be registered. Importing
it is cheap, because every Python process of Spark does so: the client and the codecs are loaded by what uses them.
"""

from __future__ import annotations

from pyspark_raftlake.session import configure
from pyspark_raftlake.source import DefaultSource

__all__ = ["DefaultSource", "configure"]
