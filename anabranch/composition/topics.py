"""Topics as Kafka has them, compared with what they must be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from anabranch.composition.storage import kafka_of, retention_of, topics_of
from anabranch.settings import Settings
from schemas.errors import ConfigurationError, InvalidRequest
from streams.topics import CHUNKED, EMBEDDED, ENTITIES, OCR_DONE

if TYPE_CHECKING:
    from streams.kafka.log import KafkaLog

CREATE = "Create it: `anabranch topics create`."
OF_GENERATION = re.compile(rf"({'|'.join((OCR_DONE, CHUNKED, ENTITIES, EMBEDDED))})\.[a-z][a-z0-9_]{{0,30}}")
"""What a generation makes otherwise than the one before it goes into a topic of its own, such as `embedded.g2`."""


@dataclass(frozen=True, slots=True)
class ComparedTopic:
    """`partitions` is None where there is no such topic. `settings` are those by which it loses records, as Kafka names them; None where the cluster does not
    let us look, which is no problem of the topic."""

    topic: str
    partitions: int | None
    wanted: int
    settings: Mapping[str, str] | None = None
    problem: str | None = None
    remedy: str | None = None

    @property
    def unseen(self) -> bool:
        return self.partitions is not None and self.settings is None


async def compared_topics(settings: Settings) -> Sequence[ComparedTopic]:
    """Those of generations too, where they are there. Nothing is created or changed. Raises InvalidRequest where the log is a table: that has the topics of its
    version."""
    if settings.log_kind != "kafka":
        raise InvalidRequest(
            "the log here is a Postgres table", code="NEEDS_KAFKA", remedy="There is nothing to verify; `anabranch db status` tells of tables."
        )
    from streams.kafka.log import KafkaLog

    log = KafkaLog(kafka_of(settings.kafka))
    try:
        plain, retention_ms = topics_of(settings), retention_of(settings)
        own = {topic: plain[found[1]] for topic in await log.topics() if (found := OF_GENERATION.fullmatch(topic))}
        return [await _compared(log, topic, wanted, retention_ms) for topic, wanted in {**plain, **own}.items()]
    finally:
        await log.close()


def unseen_settings(found: Sequence[ComparedTopic]) -> tuple[str, str] | None:
    """Which topics may keep their records for longer or shorter than they must, for all that the cluster tells, and the way out."""
    names = ", ".join(one.topic for one in found if one.unseen)
    if not names:
        return None
    return f"how long they keep their records is not known: the cluster does not let us look at the settings of {names}", "Allow DescribeConfigs on them."


async def _compared(log: KafkaLog, topic: str, wanted: int, retention_ms: Mapping[str, int]) -> ComparedTopic:
    try:
        found = len(await log.ends(topic))
    except ConfigurationError as error:
        if error.code != "NO_TOPIC":
            raise
        return ComparedTopic(topic, None, wanted, problem="is not there", remedy=CREATE)
    settings = await log.forgets(topic)
    problem, remedy = await _misfit(log, topic, wanted, retention_ms) or _kept_otherwise(topic, settings or {}, retention_ms) or (None, None)
    return ComparedTopic(topic, found, wanted, settings, problem, remedy)


async def _misfit(log: KafkaLog, topic: str, wanted: int, retention_ms: Mapping[str, int]) -> tuple[str, str] | None:
    """What keeps a worker from starting: a topic that is there is only looked at."""
    try:
        await log.create_topics({topic: wanted}, retention_ms=retention_ms)
    except ConfigurationError as error:
        return error.detail, error.remedy
    return None


def _kept_otherwise(topic: str, settings: Mapping[str, str], retention_ms: Mapping[str, int]) -> tuple[str, str] | None:
    """Against what a topic that we make has."""
    from streams.kafka.retention import kept_for

    must = kept_for(retention_ms.get(topic, -1))
    differing = [name for name, value in settings.items() if value != must[name]]
    if not differing:
        return None
    has, wanted = (", ".join(f"{name}={values[name]}" for name in differing) for values in (settings, must))
    return f"has {has}, not {wanted}: {_why(topic, retention_ms)}", f"Set {wanted} for topic {topic}."


def _why(topic: str, retention_ms: Mapping[str, int]) -> str:
    if topic in retention_ms:
        return f"what it holds is in the clear, and is kept for {timedelta(milliseconds=retention_ms[topic]).days} days"
    return "no rebuild is whole without all that it ever held"
