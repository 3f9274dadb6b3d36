"""Whose clock stamps a topic's records. The order of documents is the broker's: a producer's clock may be wrong, and would put a change before one that it follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from schemas.errors import ConfigurationError

_log = logging.getLogger(__name__)
TIMESTAMP_TYPE_SETTING = "message.timestamp.type"
LOG_APPEND_TIME = "LogAppendTime"
_TIMEOUT_S = 10.0


async def check_timestamp_types(client: AdminClient, bootstrap_servers: str, topics: Iterable[str]) -> None:
    """Raises ConfigurationError that names the first of these topics (as the cluster calls them) that is stamped by its producers, and KafkaException.
    Where the cluster does not let us look, it is believed."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in sorted(topics)]
    futures = await asyncio.to_thread(client.describe_configs, resources, request_timeout=_TIMEOUT_S)
    for resource, future in futures.items():
        try:
            entry = (await asyncio.wrap_future(future)).get(TIMESTAMP_TYPE_SETTING)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                raise
            _log.warning("not allowed to look whether topic %s has %s=%s, which it must have", resource.name, TIMESTAMP_TYPE_SETTING, LOG_APPEND_TIME)
            continue
        if entry is not None and entry.value != LOG_APPEND_TIME:
            raise ConfigurationError(
                f"Topic {resource.name} has {TIMESTAMP_TYPE_SETTING}={entry.value}: its records are stamped by their producers' clocks, not by Kafka's.",
                code="TIMESTAMPS_MISMATCH",
                remedy=f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter --entity-type topics --entity-name {resource.name} "
                f"--add-config {TIMESTAMP_TYPE_SETTING}={LOG_APPEND_TIME}",
            )
