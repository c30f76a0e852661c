"""A client of the shared quorum for the Spark tests."""

from __future__ import annotations

from sparkfixtures import client

__all__ = ["client"]
