"""One Spark session for all Spark tests, and a client of the shared quorum."""

from __future__ import annotations

from sparkfixtures import client, spark

__all__ = ["client", "spark"]
