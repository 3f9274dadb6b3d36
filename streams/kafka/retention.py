"""How long a topic keeps its records. Kafka deletes whole segments, each when its newest record has expired: what is appended now waits for the rest of its segment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

_log = logging.getLogger(__name__)
SEGMENTS = 7
"""Into which what a topic keeps is cut at least, so that a record stays for a seventh longer than it must, and not for twice as long."""
RETENTION, SEGMENT, DELAY = "retention.ms", "segment.ms", "file.delete.delay.ms"
POLICY, SIZE = "cleanup.policy", "retention.bytes"
FORGETTING = (POLICY, RETENTION, SIZE)
"""By which a topic loses records: compaction takes some for others of their key, and a size takes them however young they are."""
LOOKS = "log.retention.check.interval.ms"
LOOKS_MS = 300_000
"""Of a broker that does not let us look: Kafka's default."""
_TIMEOUT_S = 10.0
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def kept_for(retention_ms: int) -> dict[str, str]:
    """Settings of a new topic; -1 keeps its records for ever."""
    segments = {SEGMENT: str(max(1, retention_ms // SEGMENTS))} if retention_ms >= 0 else {}
    return {POLICY: "delete", RETENTION: str(retention_ms), SIZE: "-1", **segments}


async def forgets(client: AdminClient, topic: str) -> Mapping[str, str] | None:
    """What `FORGETTING` is set to, of a topic as the cluster calls it; None where the cluster does not let us look. Raises KafkaException."""
    found = await _described(client, ConfigResource(ConfigResource.Type.TOPIC, topic))
    return None if found is None else {name: found[name] for name in FORGETTING if name in found}


async def keeps(client: AdminClient, topic: str) -> timedelta | None:
    """As `EventLog.keeps`, of a topic as the cluster calls it. Raises KafkaException."""
    found = await _deleting(client, topic)
    if found is None:
        return None
    return timedelta(milliseconds=sum(int(found[name]) for name in (RETENTION, SEGMENT, DELAY)) + await _looks_ms(client))


async def keeps_at_least(client: AdminClient, topic: str) -> timedelta | None:
    """As `EventLog.keeps_at_least`, of a topic as the cluster calls it. Raises KafkaException. A topic that forgets by its size, too, promises no time."""
    found = await _deleting(client, topic)
    if found is None or found[POLICY] != "delete" or int(found[SIZE]) >= 0:
        return None
    return timedelta(milliseconds=int(found[RETENTION]))


async def _deleting(client: AdminClient, topic: str) -> Mapping[str, str] | None:
    """Its settings where it deletes by time; None also where the cluster does not let us look."""
    found = await _described(client, ConfigResource(ConfigResource.Type.TOPIC, topic))
    return None if found is None or "delete" not in found[POLICY].split(",") or int(found[RETENTION]) < 0 else found


async def _looks_ms(client: AdminClient) -> int:
    """The longest time that a broker lets pass between two looks for expired segments."""
    metadata = await asyncio.to_thread(client.list_topics, timeout=_TIMEOUT_S)
    brokers = [await _described(client, ConfigResource(ConfigResource.Type.BROKER, str(number))) for number in metadata.brokers]
    return max((int(found[LOOKS]) if found and LOOKS in found else LOOKS_MS for found in brokers), default=LOOKS_MS)


async def _described(client: AdminClient, resource: ConfigResource) -> Mapping[str, str] | None:
    """None where the cluster does not let us look."""
    [future] = (await asyncio.to_thread(client.describe_configs, [resource], request_timeout=_TIMEOUT_S)).values()
    try:
        entries: Mapping[str, ConfigEntry] = await asyncio.wrap_future(future)
    except KafkaException as error:
        if error.args[0].code() not in _DENIED:
            raise
        _log.warning("not allowed to look at the settings of %s", resource.name)
        return None
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
