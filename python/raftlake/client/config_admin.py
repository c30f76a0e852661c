"""The configs of topics: changed (IncrementalAlterConfigs, KIP-339), and read for many topics at a time.

A change that is sent twice ends as one that is sent once, so a lost answer is no reason to give up. The second try changes no
topic that was created under the name meanwhile.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from raftlake.client import protocol
from raftlake.client.admin import Admin
from raftlake.client.change import Change
from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.routing import LEADER_BACKOFF_MS_MAX
from raftlake.errors import ConfigError, ErrorCode, RequestRejected, WireError, code_of
from raftlake.wire.api import ApiKey

ALTER_CONFIGS_VERSION = 1
SET, DELETE = 0, 1
#: What the topic itself says, among the sources of a config.
OF_TOPIC = 1
#: Topics that one request asks for. Names of 249 characters stay below what nodes take.
TOPICS_AT_ONCE = 100


class ConfigAdmin:
    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self._cluster = cluster
        self._admin = admin

    async def alter(
        self, topic: str, configs: Mapping[str, str], delete: Iterable[str] = (), timeout_ms: float | None = None
    ) -> None:
        """Set and delete configs of a topic, all of them or none. RequestRejected(INVALID_CONFIG) for a name or a value that is
        not accepted, UNKNOWN_TOPIC_OR_PARTITION without the topic."""
        deadline = self._deadline(timeout_ms)
        request = alter_configs_request(topic, configs, delete)
        what = f"configs of topic {topic!r}"
        change = Change(self._cluster, what, deadline, topic=topic)
        while True:
            answer = await change.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS_VERSION, request)
            code, message = alter_configs_result(answer)
            if code is ErrorCode.NONE:
                return
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # The node has asked the leader first: there is none.
                raise change.told(RequestRejected(code, f"{what}: {message}"))
            await change.pause_or_raise(code, message)

    async def own(self, topics: Iterable[str], timeout_ms: float | None = None) -> dict[str, dict[str, str]]:
        """By topic, what it says over the settings of the nodes. Topics that do not exist are left out."""
        deadline = self._deadline(timeout_ms)
        found: dict[str, dict[str, str]] = {}
        left = iter(dict.fromkeys(topics))
        while names := list(islice(left, TOPICS_AT_ONCE)):
            found |= await self._own_of(names, deadline)
        return found

    async def _own_of(self, names: list[str], deadline: Deadline) -> dict[str, dict[str, str]]:
        backoff = Backoff(self._cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        while True:
            answer, _ = await self._cluster.ask_any(
                ApiKey.DESCRIBE_CONFIGS, protocol.DESCRIBE_CONFIGS_VERSION, protocol.topic_configs_request(*names), deadline
            )
            try:
                return own_configs_of(answer)
            except RequestRejected as refused:
                if refused.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                    raise
                await self._admin.pause_or_raise(refused.code, "configs of topics", backoff, deadline)

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)


def alter_configs_request(topic: str, configs: Mapping[str, str], delete: Iterable[str]) -> Any:
    """The request for one topic. Raises ConfigError for a name or a value that is no text."""
    delete = tuple(delete)
    for name, value in (*configs.items(), *((each, "") for each in delete)):
        if not (_is_text(name) and _is_text(value)):
            raise ConfigError(f"configs of topic {topic!r}: {name!r} with the value {value!r} is no text that can be sent")
    schema: Any = importlib.import_module(f"kio.schema.incremental_alter_configs.v{ALTER_CONFIGS_VERSION}.request")
    changes = [schema.AlterableConfig(name=name, config_operation=SET, value=value) for name, value in configs.items()]
    changes += [schema.AlterableConfig(name=name, config_operation=DELETE, value=None) for name in delete]
    resource = schema.AlterConfigsResource(resource_type=protocol.TOPIC_RESOURCE, resource_name=topic, configs=tuple(changes))
    return schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def _is_text(found: object) -> bool:
    if not isinstance(found, str):
        return False
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


def alter_configs_result(answer: Any) -> tuple[ErrorCode, str]:
    """What became of the one topic that was asked for."""
    if len(answer.responses) != 1:
        raise WireError(f"IncrementalAlterConfigs answered for {len(answer.responses)} topics instead of one")
    return code_of(answer.responses[0].error_code), answer.responses[0].error_message or ""


def own_configs_of(answer: Any) -> dict[str, dict[str, str]]:
    """By topic, what it says itself. Raises RequestRejected for any other error than that a topic does not exist."""
    found: dict[str, dict[str, str]] = {}
    for result in answer.results:
        if code_of(result.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        protocol.require_no_error(result.error_code, result.error_message, f"configs of topic {result.resource_name}")
        own = (config for config in result.configs if int(config.config_source) == OF_TOPIC)
        found[result.resource_name] = {config.name: config.value for config in own if config.value is not None}
    return found
