"""raftlake's Spark connector: `format("raftlake")` for read, readStream, write and writeStream.

Spark imports the packages on its Python path with a name that begins with `pyspark_`, and takes their `DefaultSource`. Nothing
has to be registered; the Python of the driver and of each worker has to have this package. Importing it is cheap, because every
Python process of Spark does so: the client and the codecs are loaded by what uses them.
"""

from __future__ import annotations

from pyspark_raftlake.session import configure
from pyspark_raftlake.source import DefaultSource

__all__ = ["DefaultSource", "configure"]
