"""What clients are told of errors: of bounded length, without the paths of this machine."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from raftlake.errors import CLIENT_TEXT_MAX, ErrorCode, StorageError, for_clients
from raftlake.replica.apis.answers import Answers
from raftlake.replica.apis.produce import _answer_one, _Collector
from raftlake.replica.config import ClientContext
from raftlake.runtime.http.base import HttpError
from raftlake.wire import produce
from raftlake.wire.api import ApiKey, RequestHeader, encode_response
from replica_cluster import Cluster
from runtime_fakes import run
from runtime_http_fakes import http_front

LONG = "x" * 32_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cannot sync /data/raft/t-0/000.log: No space left", "cannot sync 000.log: No space left"),
        ("the rest is in /data/t-0/damaged-1/", "the rest is in a directory"),
        ("(/a/b), '/users/key' and /a/b/c.log;", "(b), '/users/key' and c.log;"),
        ("keys under /raftlake/topics/t are the quorum's", "keys under /raftlake/topics/t are the quorum's"),
        ("no such path: '/v1/x/y'; see /v1/kv/x", "no such path: '/v1/x/y'; see /v1/kv/x"),
        ("http://h:1/v1/kv and 1/2/3", "http://h:1/v1/kv and 1/2/3"),
        ("", ""),
    ],
)
def test_names_of_files_stand_for_their_paths(text: str, told: str) -> None:
    assert for_clients(text) == told


def test_a_root_is_left_out_whatever_its_name() -> None:
    text = "cannot write /srv/my node/t-0/1.log: /srv/my node is full"
    assert for_clients(text, "/srv/my node") == for_clients(text, "/srv/my node/") == "cannot write t-0/1.log: . is full"


@pytest.mark.parametrize("size", [CLIENT_TEXT_MAX - 1, CLIENT_TEXT_MAX, CLIENT_TEXT_MAX + 1, 1_000_000])
def test_a_text_has_an_end(size: int) -> None:
    told = for_clients("y" * size)
    assert len(told) == min(size, CLIENT_TEXT_MAX) and told.endswith("…") is (size > CLIENT_TEXT_MAX)


# --- where they leave ------------------------------------------------------------------------------------------------------


def test_a_problem_over_http_is_clipped() -> None:
    body = HttpError(400, f"the key {LONG!r} is wrong").response().body
    assert len(body) < 2 * CLIENT_TEXT_MAX and body.startswith(b'{"error":"the key ')


def test_what_a_client_sent_comes_back_clipped() -> None:
    async def main() -> None:
        async with http_front() as on:
            for path in (f"/{LONG}", f"/v1/kv?{LONG}=1", f"/v1/kv?prefix={LONG}&limit={LONG}"):
                answer = await on.client.get(path)
                assert answer.status_code in (400, 404) and len(answer.content) < 4 * CLIENT_TEXT_MAX
            answer = await on.client.get("/health/live", headers={"host": LONG})
            assert answer.status_code == 421 and len(answer.content) < 4 * CLIENT_TEXT_MAX

    run(main())


def test_health_names_files_and_no_paths() -> None:
    async def main() -> None:
        async with http_front() as on:
            on.node.damage.impaired["orders-0"] = "/srv/node 1/orders-0/00.log is damaged, the rest is in /mnt/rest/damaged-0"
            for path in ("live", "ready"):
                found = (await on.client.get(f"/health/{path}")).json()["impaired"]
                assert found == {"orders-0": "orders-0/00.log is damaged, the rest is in damaged-0"}
            on.node.fatal = StorageError("cannot sync /srv/node 1/orders-0/00.log: " + LONG)
            dead = (await on.client.get("/health/live")).json()["error"]
            assert dead.startswith("cannot sync orders-0/00.log: ") and len(dead) == CLIENT_TEXT_MAX

    run(main())


def test_a_topics_name_of_any_length_gets_an_answer() -> None:
    """Told back in full, with escapes, it would not fit into the answer, which ended the connection instead."""
    cluster = Cluster(3)
    schema: Any = importlib.import_module("kio.schema.describe_configs.v1.request")
    resource = schema.DescribeConfigsResource(resource_type=2, resource_name="\1" * 20_000, configuration_keys=None)
    request = schema.DescribeConfigsRequest(resources=(resource,), include_synonyms=False)
    answer: Any = cluster.ask(cluster.leader(), ApiKey.DESCRIBE_CONFIGS, request, version=1)
    (told,) = answer.results
    assert told.error_code != 0 and len(told.error_message) == CLIENT_TEXT_MAX
    assert encode_response(RequestHeader(ApiKey.DESCRIBE_CONFIGS, 1, 1, "c"), answer)


def test_every_kafka_answer_is_made_with_a_clipped_text() -> None:
    request: Any = importlib.import_module("kio.schema.describe_configs.v4.request")
    answers = Answers(request.DescribeConfigsRequest(resources=(), include_synonyms=False, include_documentation=False))
    made = answers.make(
        "DescribeConfigsResult", error_code=0, error_message=f"no {LONG}", resource_type=2, resource_name="r", configs=()
    )
    assert len(made.error_message) == CLIENT_TEXT_MAX


def test_a_refused_batch_is_told_in_few_words() -> None:
    """One partition and several are answered on ways of their own."""
    node, client = Cluster(3).leader(), ClientContext("c", "10.0.0.1")
    for count in (1, 2):
        topic = produce.ProduceTopic("t", None, [produce.ProducePartition(index, b"") for index in range(count)])
        answers: list[Any] = []
        if count == 1:
            _answer_one(node, client, topic, 0, answers.append, None, ErrorCode.INVALID_RECORD, -1, LONG)
        else:
            collector = _Collector(node, produce.ProduceRequest(-1, 1000, None, [topic]), client, answers.append)
            for index in range(count):
                collector.put(0, index, None, ErrorCode.INVALID_RECORD, -1, LONG)
        (answer,) = answers
        told = [part.error_message for topic in answer.topics for part in topic.partitions]
        assert [len(each) for each in told] == [CLIENT_TEXT_MAX] * count
