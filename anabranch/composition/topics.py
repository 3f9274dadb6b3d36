"""Topics as Kafka has them, compared with what they must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from anabranch.composition.storage import kafka_of
from anabranch.settings import Settings
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.ports.log import EventLog
from streams.topics import RETENTION_MS, partition_counts

CREATE = "Create it: `anabranch topics create`."


@dataclass(frozen=True, slots=True)
class ComparedTopic:
    """`partitions` is None where there is no such topic; `kept_s` where it keeps its records for ever, or where the cluster does not say."""

    topic: str
    partitions: int | None
    wanted: int
    kept_s: float | None = None
    problem: str | None = None
    remedy: str | None = None


async def compared_topics(settings: Settings) -> Sequence[ComparedTopic]:
    """Nothing is created or changed. Raises InvalidRequest where the log is a table: that has the topics of its version."""
    if settings.log_kind != "kafka":
        raise InvalidRequest(
            "the log here is a Postgres table", code="NEEDS_KAFKA", remedy="There is nothing to verify; `anabranch db status` tells of tables."
        )
    from streams.kafka.log import KafkaLog

    log = KafkaLog(kafka_of(settings.kafka))
    try:
        return [await _compared(log, topic, wanted) for topic, wanted in partition_counts(settings.kafka.partitions).items()]
    finally:
        await log.close()


async def _compared(log: EventLog, topic: str, wanted: int) -> ComparedTopic:
    try:
        found = len(await log.ends(topic))
    except ConfigurationError as error:
        if error.code != "NO_TOPIC":
            raise
        return ComparedTopic(topic, None, wanted, problem="is not there", remedy=CREATE)
    kept = await log.keeps(topic)
    problem, remedy = await _misfit(log, topic, wanted) or _forgets(topic, kept) or (None, None)
    return ComparedTopic(topic, found, wanted, kept.total_seconds() if kept else None, problem, remedy)


async def _misfit(log: EventLog, topic: str, wanted: int) -> tuple[str, str] | None:
    """What keeps a worker from starting: a topic that is there is only looked at."""
    try:
        await log.create_topics({topic: wanted}, retention_ms=RETENTION_MS)
    except ConfigurationError as error:
        return error.detail, error.remedy
    return None


def _forgets(topic: str, kept: timedelta | None) -> tuple[str, str] | None:
    """The log is the truth from `accepted` on; what producers write and read is in the clear, and must have an end."""
    if kept is not None and topic not in RETENTION_MS:
        return f"forgets its records after {kept}: no rebuild would be whole then", f"Set retention.ms=-1 for topic {topic}."
    if kept is None and topic in RETENTION_MS:
        return "keeps its records for ever, in the clear: no erasure ends them", f"Set retention.ms={RETENTION_MS[topic]} for topic {topic}."
    return None
