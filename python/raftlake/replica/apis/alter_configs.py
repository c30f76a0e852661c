"""AlterConfigs (33) and IncrementalAlterConfigs (44): the configs of topics change. Any node takes them, as CreateTopics.

Each topic is one compare-and-set on its key, and is answered once this node has applied it. A request may name several topics;
each succeeds or fails by itself, as in Kafka. Settings of nodes stand in files, and are not changed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.replica.apis.answers import Answers, Reply, kafka_error, once
from raftlake.replica.apis.configs import RESOURCE_BROKER, RESOURCE_TOPIC, surroundings
from raftlake.replica.config import METADATA_TOPIC, ClientContext
from raftlake.replica.configs.changes import Change, Operation, altered, replaced, require_once, require_same_log
from raftlake.replica.hosting.topics import require_name
from raftlake.replica.refused_for_good import ALTER, ALTER_NODE, ALTER_OTHER
from raftlake.replica.reserved import OWN_LOG, Topic
from raftlake.replica.services import Services

#: What is told of a refusal, by the type of the resource.
_KINDS = {RESOURCE_TOPIC: ALTER, RESOURCE_BROKER: ALTER_NODE}
#: Makes the configs that a topic has afterwards of those that it has. Raises RequestRejected.
Edit = Callable[[Mapping[str, str]], Mapping[str, str]]


def alter_configs(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    """AlterConfigs: what is named is all that a topic has of its own afterwards."""

    def edit(resource: Any) -> Edit:
        given = [(config.name, config.value) for config in resource.configs]
        return lambda _before: replaced(given, surroundings(node))

    _Alteration(node, request, client, reply, edit, "AlterConfigsResponse", "AlterConfigsResourceResponse").begin()


def incremental_alter_configs(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    """IncrementalAlterConfigs (KIP-339)."""

    def edit(resource: Any) -> Edit:
        changes = _changes(resource)
        return lambda before: altered(before, changes, surroundings(node))

    names = "IncrementalAlterConfigsResponse", "AlterConfigsResourceResponse"
    _Alteration(node, request, client, reply, edit, *names).begin()


def _changes(resource: Any) -> list[Change]:
    """Raises RequestRejected(INVALID_REQUEST), in Kafka's words where Kafka refuses too."""
    require_once(
        (config.name, "" if config.config_operation == Operation.DELETE else config.value) for config in resource.configs
    )
    changes = []
    for config in resource.configs:
        try:
            operation = Operation(config.config_operation)
        except ValueError as error:
            told = f"Unknown operation type {config.config_operation}"
            raise RequestRejected(ErrorCode.INVALID_REQUEST, told) from error
        changes.append(Change(config.name, operation, config.value))
    return changes


class _Alteration:
    """One request. Each of its resources is answered once; the request when all are."""

    def __init__(
        self,
        node: Services,
        request: Any,
        client: ClientContext,
        reply: Reply,
        edit: Callable[[Any], Edit],
        response: str,
        result: str,
    ) -> None:
        self._node = node
        self._request = request
        self._client = client
        self._reply = reply
        self._edit = edit
        self._names = response, result
        self._asked = once(request.resources, _key)
        self._results: dict[tuple[int, str], tuple[ErrorCode, str]] = {}

    def begin(self) -> None:
        times = Counter(_key(resource) for resource in self._request.resources)
        for resource in self._asked:
            try:
                if times[_key(resource)] > 1:
                    raise RequestRejected(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                self._alter(resource)
            except RequestRejected as rejected:
                self._on_done(resource, None, rejected.code, rejected.message)
        if not self._asked:
            self._end()

    def _alter(self, resource: Any) -> None:
        """Raises RequestRejected for what can be told at once."""
        node, name = self._node, resource.resource_name
        _require_topic(resource.resource_type, name)
        edit = self._edit(resource)

        def edited(topic: Topic) -> Topic:
            configs = edit(topic.configs)
            require_same_log(topic.configs, configs, surroundings(node))
            return topic.with_configs(configs)

        done = partial(self._on_done, resource)
        if self._request.validate_only:
            edited(node.topics.require(name))
            done(None, ErrorCode.NONE, "")
        else:
            node.topics.change(name, edited, done)

    def _on_done(self, resource: Any, _topic: Topic | None, error: ErrorCode, message: str) -> None:
        kind = _KINDS.get(resource.resource_type, ALTER_OTHER)
        self._node.refused_for_good.note_error(kind, resource.resource_name, error, message, self._client)
        self._results[_key(resource)] = error, message
        if len(self._results) == len(self._asked):
            self._end()

    def _end(self) -> None:
        answers, (response, result) = Answers(self._request), self._names
        responses = []
        for resource in self._asked:
            error, message = self._results[_key(resource)]
            responses.append(
                answers.make(
                    result,
                    error_code=kafka_error(error),
                    error_message=message or None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        self._reply(answers.make(response, responses=tuple(responses)))


def _key(resource: Any) -> tuple[int, str]:
    return int(resource.resource_type), resource.resource_name


def _require_topic(kind: int, name: str) -> None:
    """RequestRejected for what is no topic, or the quorum's own log."""
    if kind == RESOURCE_BROKER:
        raise RequestRejected(
            ErrorCode.INVALID_REQUEST,
            "the settings of a node stand in its node.properties: change them there, and start the node again",
        )
    if kind != RESOURCE_TOPIC:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs here")
    if name == METADATA_TOPIC:
        raise RequestRejected(ErrorCode.INVALID_TOPIC_EXCEPTION, OWN_LOG)
    require_name(name)
