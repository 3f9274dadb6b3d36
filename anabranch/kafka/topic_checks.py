"""Comparison of Kafka's topics with the required layout."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from anabranch.config.settings import Settings
from anabranch.kafka.settings import (
    build_kafka_settings,
    resolve_retention_ms,
    resolve_topic_partitions,
)
from processors import TOPICS
from schemas.errors import ConfigurationError, InvalidRequest

if TYPE_CHECKING:
    from streams.kafka.kafka_log import KafkaLog

CREATE_REMEDY = "Create it: `anabranch topics create`."
GENERATION_TOPIC = re.compile(
    rf"({'|'.join(topic for topic in TOPICS if topic.per_generation)})\.[a-z][a-z0-9_]{{0,30}}"
)
"""Topic of one generation, for events that differ from those of the previous one, such as
`embedded.g2`.
"""


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """Result for one topic.

    `partitions` is None if the topic does not exist. `settings` are Kafka's settings that delete
    records, or None if this principal may not read them, which is not a problem of the topic.
    """

    topic: str
    partitions: int | None
    wanted: int
    settings: Mapping[str, str] | None = None
    problem: str | None = None
    remedy: str | None = None

    @property
    def has_unreadable_settings(self) -> bool:
        return self.partitions is not None and self.settings is None


async def check_topics(settings: Settings) -> Sequence[TopicCheck]:
    """Check all topics, including those of generations, without changing them. Raises
    InvalidRequest without Kafka.
    """
    if settings.log_kind != "kafka":
        raise InvalidRequest(
            "The log is a Postgres table, which has no topics to verify.",
            code="NEEDS_KAFKA",
            remedy="Check the tables with `anabranch db status`.",
        )
    from streams.kafka.kafka_log import KafkaLog

    log = KafkaLog(build_kafka_settings(settings.kafka))
    try:
        base_partitions, retention_ms = (
            resolve_topic_partitions(settings),
            resolve_retention_ms(settings),
        )
        # Only the broker knows them: the settings do not name generations.
        generation_partitions = {
            topic: base_partitions[match[1]]
            for topic in await log.list_topics()
            if (match := GENERATION_TOPIC.fullmatch(topic))
        }
        return [
            await _check_topic(log, topic, wanted, retention_ms)
            for topic, wanted in {**base_partitions, **generation_partitions}.items()
        ]
    finally:
        await log.close()


def explain_unreadable_settings(topic_checks: Sequence[TopicCheck]) -> tuple[str, str] | None:
    """Return detail and fix for topics whose retention this principal may not read, or None."""
    names = ", ".join(check.topic for check in topic_checks if check.has_unreadable_settings)
    if not names:
        return None
    return (
        f"retention unknown: this principal may not read the settings of {names}",
        "Grant it DescribeConfigs on these topics.",
    )


async def _check_topic(
    log: KafkaLog, topic: str, expected_partitions: int, retention_ms: Mapping[str, int]
) -> TopicCheck:
    try:
        partition_count = len(await log.fetch_offset_bounds(topic))
    except ConfigurationError as error:
        if error.code != "NO_TOPIC":
            raise
        return TopicCheck(
            topic, None, expected_partitions, problem="does not exist", remedy=CREATE_REMEDY
        )
    settings = await log.fetch_loss_settings(topic)
    mismatch = _find_retention_mismatch(topic, settings or {}, retention_ms)
    try:
        # An existing topic is only compared, not changed. An error would keep a worker from
        # starting.
        await log.create_topics({topic: expected_partitions}, retention_ms=retention_ms)
    except ConfigurationError as error:
        mismatch = error.detail, error.remedy
    problem, remedy = mismatch or (None, None)
    return TopicCheck(topic, partition_count, expected_partitions, settings, problem, remedy)


def _find_retention_mismatch(
    topic: str, settings: Mapping[str, str], retention_ms: Mapping[str, int]
) -> tuple[str, str] | None:
    from streams.kafka.topic_config import build_retention_config

    # -1 is Kafka's value for unlimited retention.
    expected = build_retention_config(retention_ms.get(topic, -1))
    differing = [name for name, value in settings.items() if value != expected[name]]
    if not differing:
        return None
    actual_text, expected_text = (
        ", ".join(f"{name}={values[name]}" for name in differing) for values in (settings, expected)
    )
    reason = (
        f"its events must expire after {timedelta(milliseconds=retention_ms[topic]).days} days"
        if topic in retention_ms
        else "a rebuild needs all of its events"
    )
    return (
        f"has {actual_text}, not {expected_text}: {reason}",
        f"Set {expected_text} for topic {topic}.",
    )
