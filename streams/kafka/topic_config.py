"""Settings of topics: the clock of timestamps, and retention.

Kafka deletes whole segments, each when its newest record has expired, so a record outlives
`retention.ms` by up to one segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType

from schemas.errors import ConfigurationError

log = structlog.get_logger(__name__)
TIMESTAMP_TYPE_SETTING = "message.timestamp.type"
LOG_APPEND_TIME = "LogAppendTime"
_TIMEOUT_S = 10.0


async def check_timestamp_types(
    client: AdminClient, bootstrap_servers: str, topics: Iterable[str]
) -> None:
    """Check that topics use the broker's clock (names include the prefix).

    Topics whose settings this principal may not read are trusted. Raises ConfigurationError for
    the first topic with producer timestamps, and KafkaException.
    """
    # Timestamps order the revisions of a document: a producer's wrong clock could put a change
    # before its predecessor.
    names = sorted(topics)
    required = {"setting": TIMESTAMP_TYPE_SETTING, "required": LOG_APPEND_TIME}
    configs = await _describe_configs(client, ResourceType.TOPIC, names, **required)
    for topic, config in zip(names, configs, strict=True):
        clock = (config or {}).get(TIMESTAMP_TYPE_SETTING, LOG_APPEND_TIME)
        if clock != LOG_APPEND_TIME:
            raise ConfigurationError(
                f"Topic {topic} has {TIMESTAMP_TYPE_SETTING}={clock}, so producers' clocks set its "
                f"timestamps. {LOG_APPEND_TIME} is required.",
                code="TIMESTAMPS_MISMATCH",
                remedy=f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter "
                f"--entity-type topics --entity-name {topic} "
                f"--add-config {TIMESTAMP_TYPE_SETTING}={LOG_APPEND_TIME}",
            )


MIN_SEGMENTS = 7
"""Segments per retention time: a record stays up to a seventh longer than required, not twice as
long.
"""
RETENTION_SETTING = "retention.ms"
SEGMENT_SETTING = "segment.ms"
DELETE_DELAY_SETTING = "file.delete.delay.ms"
CLEANUP_POLICY_SETTING, SIZE_SETTING = "cleanup.policy", "retention.bytes"
LOSS_SETTINGS = (CLEANUP_POLICY_SETTING, RETENTION_SETTING, SIZE_SETTING)
"""Settings that can delete records: compaction keeps one per key, a size limit ignores the age."""
CHECK_INTERVAL_SETTING = "log.retention.check.interval.ms"
DEFAULT_CHECK_INTERVAL_MS = 300_000
"""Kafka's default, assumed for brokers whose settings this principal may not read."""
_DENIED_CODES = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def build_retention_config(retention_ms: int) -> dict[str, str]:
    """Build the retention settings of a new topic. -1 keeps records forever."""
    segment_config = (
        # Kafka deletes closed segments only, and its default closes one after a week.
        {SEGMENT_SETTING: str(max(1, retention_ms // MIN_SEGMENTS))} if retention_ms >= 0 else {}
    )
    return {
        # All explicit: defaults of the cluster might compact or limit the size, and lose events.
        CLEANUP_POLICY_SETTING: "delete",
        RETENTION_SETTING: str(retention_ms),
        SIZE_SETTING: "-1",
        **segment_config,
    }


async def fetch_loss_settings(client: AdminClient, topic: str) -> Mapping[str, str] | None:
    """Return the topic's `LOSS_SETTINGS`, or None if access is denied. `topic` includes the prefix.

    Raises KafkaException.
    """
    config = await _describe_config(client, ResourceType.TOPIC, topic)
    return (
        None if config is None else {name: config[name] for name in LOSS_SETTINGS if name in config}
    )


async def fetch_max_retention(client: AdminClient, topic: str) -> timedelta | None:
    """See `EventLog.fetch_max_retention`. `topic` includes the prefix. Raises KafkaException."""
    config = await _fetch_time_retention_config(client, topic)
    if config is None:
        return None
    return timedelta(
        milliseconds=sum(
            # An expired record waits for its segment to close, for the next check, and for the
            # file's deletion.
            int(config[name])
            for name in (RETENTION_SETTING, SEGMENT_SETTING, DELETE_DELAY_SETTING)
        )
        + await _fetch_check_interval_ms(client)
    )


async def fetch_min_retention(client: AdminClient, topic: str) -> timedelta | None:
    """See `EventLog.fetch_min_retention`. `topic` includes the prefix. Raises KafkaException."""
    config = await _fetch_time_retention_config(client, topic)
    # A topic with a size limit or compaction guarantees no time.
    if (
        config is None
        or config[CLEANUP_POLICY_SETTING] != "delete"
        or int(config[SIZE_SETTING]) >= 0
    ):
        return None
    return timedelta(milliseconds=int(config[RETENTION_SETTING]))


async def _fetch_time_retention_config(client: AdminClient, topic: str) -> Mapping[str, str] | None:
    """Return the settings of a topic that deletes by time; None if it does not or denies access."""
    config = await _describe_config(client, ResourceType.TOPIC, topic)
    return (
        None
        if config is None
        or "delete" not in config[CLEANUP_POLICY_SETTING].split(",")
        or int(config[RETENTION_SETTING]) < 0
        else config
    )


async def _fetch_check_interval_ms(client: AdminClient) -> int:
    """Return the longest interval at which a broker checks for expired segments."""
    metadata = await asyncio.to_thread(client.list_topics, timeout=_TIMEOUT_S)
    broker_configs = [
        await _describe_config(client, ResourceType.BROKER, str(broker_id))
        for broker_id in metadata.brokers
    ]
    return max(
        (
            int(config[CHECK_INTERVAL_SETTING])
            if config and CHECK_INTERVAL_SETTING in config
            else DEFAULT_CHECK_INTERVAL_MS
            for config in broker_configs
        ),
        default=DEFAULT_CHECK_INTERVAL_MS,
    )


async def _describe_config(
    client: AdminClient, kind: ResourceType, name: str
) -> Mapping[str, str] | None:
    return (await _describe_configs(client, kind, [name]))[0]


async def _describe_configs(
    client: AdminClient, kind: ResourceType, names: Sequence[str], **context: str
) -> list[Mapping[str, str] | None]:
    """Return the settings of resources of a kind, None where access is denied.

    `context` is logged then. Only one broker is allowed.
    """
    resources = [ConfigResource(kind, name) for name in names]
    futures = await asyncio.to_thread(
        client.describe_configs, resources, request_timeout=_TIMEOUT_S
    )
    configs: list[Mapping[str, str] | None] = []
    for resource in resources:
        try:
            entries: Mapping[str, ConfigEntry] = await asyncio.wrap_future(futures[resource])
        except KafkaException as error:
            if error.args[0].code() not in _DENIED_CODES:
                raise
            log.warning("kafka_config_access_denied", resource=resource.name, **context)
            configs.append(None)
        else:
            configs.append(
                {name: entry.value for name, entry in entries.items() if entry.value is not None}
            )
    return configs
