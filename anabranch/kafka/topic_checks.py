"""Topics as Kafka has them, compared with what they must be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from anabranch.config.settings import Settings
from anabranch.kafka.settings import build_kafka_settings, resolve_retention_ms, resolve_topic_partitions
from schemas.errors import ConfigurationError, InvalidRequest
from streams.topics import CHUNKED, EMBEDDED, ENTITIES, OCR_DONE

if TYPE_CHECKING:
    from streams.kafka.kafka_log import KafkaLog

CREATE_REMEDY = "Create it: `anabranch topics create`."
GENERATION_TOPIC = re.compile(rf"({'|'.join((OCR_DONE, CHUNKED, ENTITIES, EMBEDDED))})\.[a-z][a-z0-9_]{{0,30}}")
"""What a generation makes otherwise than the one before it goes into a topic of its own, such as `embedded.g2`."""


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """`partitions` is None where there is no such topic. `settings` are those by which it loses records, as Kafka names them; None where the cluster does not
    let us look, which is no problem of the topic."""

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
    """Those of generations too, where they are there. Nothing is created or changed. Raises InvalidRequest where the log is a table: that has the topics of its
    version."""
    if settings.log_kind != "kafka":
        raise InvalidRequest(
            "the log here is a Postgres table", code="NEEDS_KAFKA", remedy="There is nothing to verify; `anabranch db status` tells of tables."
        )
    from streams.kafka.kafka_log import KafkaLog

    log = KafkaLog(build_kafka_settings(settings.kafka))
    try:
        base_partitions, retention_ms = resolve_topic_partitions(settings), resolve_retention_ms(settings)
        generation_partitions = {topic: base_partitions[match[1]] for topic in await log.list_topics() if (match := GENERATION_TOPIC.fullmatch(topic))}
        return [await _check_topic(log, topic, wanted, retention_ms) for topic, wanted in {**base_partitions, **generation_partitions}.items()]
    finally:
        await log.close()


def explain_unreadable_settings(topic_checks: Sequence[TopicCheck]) -> tuple[str, str] | None:
    """Which topics may keep their records for longer or shorter than they must, for all that the cluster tells, and the way out."""
    names = ", ".join(check.topic for check in topic_checks if check.has_unreadable_settings)
    if not names:
        return None
    return f"how long they keep their records is not known: the cluster does not let us look at the settings of {names}", "Allow DescribeConfigs on them."


async def _check_topic(log: KafkaLog, topic: str, expected_partitions: int, retention_ms: Mapping[str, int]) -> TopicCheck:
    try:
        partition_count = len(await log.fetch_offset_bounds(topic))
    except ConfigurationError as error:
        if error.code != "NO_TOPIC":
            raise
        return TopicCheck(topic, None, expected_partitions, problem="is not there", remedy=CREATE_REMEDY)
    settings = await log.fetch_loss_settings(topic)
    problem, remedy = (
        await _find_mismatch(log, topic, expected_partitions, retention_ms) or _find_retention_mismatch(topic, settings or {}, retention_ms) or (None, None)
    )
    return TopicCheck(topic, partition_count, expected_partitions, settings, problem, remedy)


async def _find_mismatch(log: KafkaLog, topic: str, expected_partitions: int, retention_ms: Mapping[str, int]) -> tuple[str, str] | None:
    """What keeps a worker from starting: a topic that is there is only looked at."""
    try:
        await log.create_topics({topic: expected_partitions}, retention_ms=retention_ms)
    except ConfigurationError as error:
        return error.detail, error.remedy
    return None


def _find_retention_mismatch(topic: str, settings: Mapping[str, str], retention_ms: Mapping[str, int]) -> tuple[str, str] | None:
    """Against what a topic that we make has."""
    from streams.kafka.retention import build_retention_config

    expected = build_retention_config(retention_ms.get(topic, -1))
    differing = [name for name, value in settings.items() if value != expected[name]]
    if not differing:
        return None
    actual_text, expected_text = (", ".join(f"{name}={values[name]}" for name in differing) for values in (settings, expected))
    return f"has {actual_text}, not {expected_text}: {_explain_retention(topic, retention_ms)}", f"Set {expected_text} for topic {topic}."


def _explain_retention(topic: str, retention_ms: Mapping[str, int]) -> str:
    if topic in retention_ms:
        return f"what it holds is in the clear, and is kept for {timedelta(milliseconds=retention_ms[topic]).days} days"
    return "no rebuild is whole without all that it ever held"
