"""ApiVersions (KIP-511): what this listener speaks, straight from the API table. Private APIs are not told to clients:
some of them stop at a key that they do not know. What is listed depends on the listener (`listener.apis`)."""

from __future__ import annotations

import datetime
import importlib
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.driver import ListenerUse
from raftlake.raft.types import Offset
from raftlake.replica.voters.membership import TRANSACTION_VERSION_MAX, TRANSACTION_VERSION_MIN
from raftlake.runtime.listener.apis import listed
from raftlake.wire.control import KRAFT_VERSION_MAX, KRAFT_VERSION_MIN


def answer_api_versions(
    version: int,
    use: ListenerUse = ListenerUse.SHARED,
    finalized: tuple[int, Offset] = (KRAFT_VERSION_MIN, Offset(-1)),
    transaction_version: int = 0,
) -> object:
    """The answer to an ApiVersions request of `version` at a listener. `finalized` is the quorum's kraft.version, and the
    offset of its log up to which this node knows that (-1: it knows nothing). `transaction_version` is what producers may
    use."""
    schema: Any = importlib.import_module(f"kio.schema.api_versions.v{version}.response")
    keys = tuple(
        schema.ApiVersion(api_key=int(api.key), min_version=api.version_min, max_version=api.version_max) for api in listed(use)
    )
    fields: dict[str, object] = {"error_code": ErrorCode.NONE, "api_keys": keys}
    if version >= 1:
        fields["throttle_time"] = datetime.timedelta(0)
    if version >= 4:
        # Earlier versions cannot say that a feature begins at 0. A leader adds only voters that know its kraft.version.
        supported = (
            ("kraft.version", KRAFT_VERSION_MIN, KRAFT_VERSION_MAX),
            ("transaction.version", TRANSACTION_VERSION_MIN, TRANSACTION_VERSION_MAX),
        )
        fields["supported_features"] = tuple(
            schema.SupportedFeatureKey(name=name, min_version=low, max_version=high) for name, low, high in supported
        )
        kraft_version, fields["finalized_features_epoch"] = finalized
        levels = (("kraft.version", kraft_version), ("transaction.version", transaction_version))
        # As at Kafka, a feature at level 0 is none.
        fields["finalized_features"] = tuple(
            schema.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in levels
            if level > 0
        )
    return schema.ApiVersionsResponse(**fields)
