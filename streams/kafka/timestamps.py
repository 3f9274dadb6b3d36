"""Check that topics use the broker's clock (LogAppendTime).

Timestamps order the revisions of a document. A producer's wrong clock could put a change before its
predecessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from schemas.errors import ConfigurationError

log = structlog.get_logger(__name__)
TIMESTAMP_TYPE_SETTING = "message.timestamp.type"
LOG_APPEND_TIME = "LogAppendTime"
_TIMEOUT_S = 10.0


async def check_timestamp_types(
    client: AdminClient, bootstrap_servers: str, topics: Iterable[str]
) -> None:
    """Check topics (names include the prefix). Topics whose settings this principal may not read
    are trusted.

    Raises ConfigurationError for the first topic with producer timestamps, and KafkaException.
    """
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in sorted(topics)]
    futures = await asyncio.to_thread(
        client.describe_configs, resources, request_timeout=_TIMEOUT_S
    )
    for resource, future in futures.items():
        try:
            entry = (await asyncio.wrap_future(future)).get(TIMESTAMP_TYPE_SETTING)
        except KafkaException as error:
            if error.args[0].code() not in (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            ):
                raise
            log.warning(
                "kafka_config_access_denied",
                resource=resource.name,
                setting=TIMESTAMP_TYPE_SETTING,
                required=LOG_APPEND_TIME,
            )
            continue
        if entry is not None and entry.value != LOG_APPEND_TIME:
            raise ConfigurationError(
                f"Topic {resource.name} has {TIMESTAMP_TYPE_SETTING}={entry.value}, so producers' clocks set its timestamps. {LOG_APPEND_TIME} is required.",
                code="TIMESTAMPS_MISMATCH",
                remedy=f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter --entity-type topics --entity-name {resource.name} "
                f"--add-config {TIMESTAMP_TYPE_SETTING}={LOG_APPEND_TIME}",
            )
