"""The keys in which sources of streaming queries say how far they are, for writers of them (`kv/query_positions.py`)."""

from __future__ import annotations

from raftlake.kv.query_positions import ROOT, SourcePosition, decode, encode, position_key, query_of

__all__ = ["ROOT", "SourcePosition", "decode", "encode", "position_key", "query_of"]
