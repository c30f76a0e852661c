"""The one decision about lost data: `failOnDataLoss` makes it an error, or a warning after which the query goes on."""

from __future__ import annotations

import logging

from pyspark_raftlake.errors import DataLoss

_log = logging.getLogger(__name__)


def report_data_loss(message: str, *, fail: bool) -> None:
    if fail:
        raise DataLoss(message)
    _log.warning("%s; going on because failOnDataLoss is false", message)
