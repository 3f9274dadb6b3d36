"""How long a topic keeps its records. Kafka deletes whole segments, each when its newest record has expired: what is appended now waits for the rest of its segment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

_log = logging.getLogger(__name__)
MIN_SEGMENTS = 7
"""Into which what a topic keeps is cut at least, so that a record stays for a seventh longer than it must, and not for twice as long."""
RETENTION_SETTING, SEGMENT_SETTING, DELETE_DELAY_SETTING = "retention.ms", "segment.ms", "file.delete.delay.ms"
CLEANUP_POLICY_SETTING, SIZE_SETTING = "cleanup.policy", "retention.bytes"
LOSS_SETTINGS = (CLEANUP_POLICY_SETTING, RETENTION_SETTING, SIZE_SETTING)
"""By which a topic loses records: compaction takes some for others of their key, and a size takes them however young they are."""
CHECK_INTERVAL_SETTING = "log.retention.check.interval.ms"
DEFAULT_CHECK_INTERVAL_MS = 300_000
"""Of a broker that does not let us look: Kafka's default."""
_TIMEOUT_S = 10.0
_DENIED_CODES = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def build_retention_config(retention_ms: int) -> dict[str, str]:
    """Settings of a new topic; -1 keeps its records for ever."""
    segment_config = {SEGMENT_SETTING: str(max(1, retention_ms // MIN_SEGMENTS))} if retention_ms >= 0 else {}
    return {CLEANUP_POLICY_SETTING: "delete", RETENTION_SETTING: str(retention_ms), SIZE_SETTING: "-1", **segment_config}


async def fetch_loss_settings(client: AdminClient, topic: str) -> Mapping[str, str] | None:
    """What `LOSS_SETTINGS` is set to, of a topic as the cluster calls it; None where the cluster does not let us look. Raises KafkaException."""
    config = await _describe_config(client, ConfigResource(ConfigResource.Type.TOPIC, topic))
    return None if config is None else {name: config[name] for name in LOSS_SETTINGS if name in config}


async def fetch_max_retention(client: AdminClient, topic: str) -> timedelta | None:
    """As `EventLog.keeps`, of a topic as the cluster calls it. Raises KafkaException."""
    config = await _fetch_time_retention_config(client, topic)
    if config is None:
        return None
    return timedelta(
        milliseconds=sum(int(config[name]) for name in (RETENTION_SETTING, SEGMENT_SETTING, DELETE_DELAY_SETTING)) + await _fetch_check_interval_ms(client)
    )


async def fetch_min_retention(client: AdminClient, topic: str) -> timedelta | None:
    """As `EventLog.keeps_at_least`, of a topic as the cluster calls it. Raises KafkaException. A topic that forgets by its size, too, promises no time."""
    config = await _fetch_time_retention_config(client, topic)
    if config is None or config[CLEANUP_POLICY_SETTING] != "delete" or int(config[SIZE_SETTING]) >= 0:
        return None
    return timedelta(milliseconds=int(config[RETENTION_SETTING]))


async def _fetch_time_retention_config(client: AdminClient, topic: str) -> Mapping[str, str] | None:
    """Its settings where it deletes by time; None also where the cluster does not let us look."""
    config = await _describe_config(client, ConfigResource(ConfigResource.Type.TOPIC, topic))
    return None if config is None or "delete" not in config[CLEANUP_POLICY_SETTING].split(",") or int(config[RETENTION_SETTING]) < 0 else config


async def _fetch_check_interval_ms(client: AdminClient) -> int:
    """The longest time that a broker lets pass between two looks for expired segments."""
    metadata = await asyncio.to_thread(client.list_topics, timeout=_TIMEOUT_S)
    broker_configs = [await _describe_config(client, ConfigResource(ConfigResource.Type.BROKER, str(broker_id))) for broker_id in metadata.brokers]
    return max(
        (int(config[CHECK_INTERVAL_SETTING]) if config and CHECK_INTERVAL_SETTING in config else DEFAULT_CHECK_INTERVAL_MS for config in broker_configs),
        default=DEFAULT_CHECK_INTERVAL_MS,
    )


async def _describe_config(client: AdminClient, resource: ConfigResource) -> Mapping[str, str] | None:
    """None where the cluster does not let us look."""
    [future] = (await asyncio.to_thread(client.describe_configs, [resource], request_timeout=_TIMEOUT_S)).values()
    try:
        entries: Mapping[str, ConfigEntry] = await asyncio.wrap_future(future)
    except KafkaException as error:
        if error.args[0].code() not in _DENIED_CODES:
            raise
        _log.warning("not allowed to look at the settings of %s", resource.name)
        return None
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
