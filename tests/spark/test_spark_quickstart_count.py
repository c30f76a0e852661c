"""The quickstart's count of what its topic holds, over topics where something is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark

#: Flights 0 to 5 of two carriers, whose partitions hold them in order.
FLIGHTS = [("AA", 0), ("UA", 1), ("AA", 2), ("UA", 3), ("AA", 4), ("UA", 5)]
LOST = [flight for flight in FLIGHTS if flight[1] != 3]
DOUBLED = [*FLIGHTS, ("UA", 5)]
DISORDERED = [("AA", 2), ("UA", 1), ("AA", 0), ("UA", 3), ("AA", 4), ("UA", 5)]


@pytest.mark.parametrize(
    ("topic", "flights", "differs"),
    [
        ("count-whole", FLIGHTS, {}),
        ("count-lost", LOST, {"rows": 5, "offsets": 5, "ids": 5}),
        ("count-doubled", DOUBLED, {"rows": 7, "offsets": 7}),
        ("count-disordered", DISORDERED, {"carriers_out_of_order": 1}),
    ],
)
def test_what_is_wrong_is_counted(
    spark: SparkSession,
    quorum: LocalQuorum,
    client: Client,
    topic: str,
    flights: list[tuple[str, int]],
    differs: dict[str, int],
) -> None:
    from raftlake.quickstart.spark import TopicCount, count_topic

    client.create_topic(topic, 2)
    for carrier, number in flights:
        client.append(topic, json.dumps({"carrier": carrier, "id": number}), partition=0 if carrier == "AA" else 1)
    whole = TopicCount(rows=6, offsets=6, ids=6, id_min=0, id_max=5, carriers_out_of_order=0)
    assert count_topic(spark, quorum.bootstrap_servers, topic) == replace(whole, **differs)
