"""Requirements of the Kafka cluster: the layout of its topics, and access rules.

Producers write only `raw`, the API and workers every other topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
from schemas.topics import OUTCOMES, RAW, Writer, get_base_topic
from streams.kafka.acls import Grant, get_principal

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
        base_partitions = resolve_topic_partitions(settings)
        retention_ms = resolve_retention_ms(settings)
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


GENERATION_TOPICS = tuple(topic for topic in TOPICS if topic.per_generation)
READ_OPERATIONS = ("Read", "Describe", "DescribeConfigs")
ADMIN_OPERATIONS = ("Create", "Delete", "Alter", "AlterConfigs", "Describe", "DescribeConfigs")


@dataclass(frozen=True, slots=True)
class KafkaPrincipals:
    """Principals of the cluster. A producer with a topic `raw.NAME` is `User:NAME`."""

    api: str = "User:anabranch-api"
    worker: str = "User:anabranch-worker"
    producer: str = "User:producer"
    admin: str = "User:anabranch-admin"


def build_required_grants(settings: Settings, principals: KafkaPrincipals) -> list[Grant]:
    return [
        # The API starts builds and drops generations, with their topics. It reads committed
        # offsets for the lag.
        *_build_program_grants(
            settings, principals.api, "api", ("Create", "Delete"), ("Describe",)
        ),
        # Workers finish the removal of a generation, which deletes topics.
        *_build_program_grants(
            settings,
            principals.worker,
            "workers",
            ("Write", "Create", "Delete"),
            ("Read", "Describe"),
        ),
        *_build_producer_grants(settings, principals),
        *_build_admin_grants(settings, principals.admin),
    ]


def format_commands(grants: Sequence[Grant], bootstrap: str) -> list[str]:
    """Format the grants as commands for `kafka-acls.sh`."""
    commands = []
    for grant in grants:
        operations = " ".join(f"--operation {operation}" for operation in grant.operations)
        resource = (
            "--cluster"
            if grant.resource == "cluster"
            else f"--{grant.resource} '{grant.name}' --resource-pattern-type {grant.pattern}"
        )
        commands.append(
            f"kafka-acls.sh --bootstrap-server {bootstrap} --command-config admin.properties "
            f"--add --allow-principal '{grant.principal}' {operations} {resource}"
        )
    return commands


def find_foreign_writers(settings: Settings, grants: Sequence[Grant]) -> dict[str, list[str]]:
    """Return foreign principals with the topics of this program that they may write, except `raw`
    and `raw.NAME`.
    """
    own_principals = set(settings.kafka.principals) or {
        get_principal(build_kafka_settings(settings.kafka))
    }
    writers: dict[str, list[str]] = {}
    for topic in resolve_topic_partitions(settings):
        for grant in grants:
            if (
                get_base_topic(topic) != RAW
                and grant.can_write
                and grant.principal not in own_principals
                and grant.covers(settings.kafka.topic_prefix + topic)
            ):
                writers.setdefault(grant.principal, []).append(topic)
    return {principal: list(dict.fromkeys(topics)) for principal, topics in writers.items()}


def _build_program_grants(
    settings: Settings,
    principal: str,
    writer: Writer,
    generation_topic_operations: tuple[str, ...],
    group_operations: tuple[str, ...],
) -> Iterator[Grant]:
    for topic in resolve_topic_partitions(settings):
        # A topic `raw.NAME` belongs to one producer; no other principal writes it.
        declared = next(declared for declared in TOPICS if declared == get_base_topic(topic))
        is_writer = topic not in settings.ingest.topics and writer in declared.written_by
        operations = (*READ_OPERATIONS, *(("Write",) if is_writer else ()))
        yield _build_topic_grant(settings, principal, topic, operations)
    for topic in GENERATION_TOPICS:
        operations = (*READ_OPERATIONS, *generation_topic_operations)
        yield _build_topic_grant(settings, principal, f"{topic}.", operations, "prefixed")
    yield Grant(
        principal, "group", f"{settings.kafka.topic_prefix}anabranch.", "prefixed", group_operations
    )


def _build_producer_grants(settings: Settings, principals: KafkaPrincipals) -> Iterator[Grant]:
    producer_principals = {
        topic: f"User:{topic.partition('.')[2]}" for topic in settings.ingest.topics
    }
    for topic, principal in {RAW: principals.producer, **producer_principals}.items():
        yield _build_topic_grant(settings, principal, topic, ("Write", "Describe"))
        yield _build_topic_grant(settings, principal, OUTCOMES, ("Read", "Describe"))
        # For its consumers of `outcomes`.
        yield Grant(
            principal, "group", f"{principal.partition(':')[2]}.", "prefixed", ("Read", "Describe")
        )


def _build_admin_grants(settings: Settings, principal: str) -> Iterator[Grant]:
    for topic in resolve_topic_partitions(settings):
        yield _build_topic_grant(settings, principal, topic, ADMIN_OPERATIONS)
    for topic in GENERATION_TOPICS:
        yield _build_topic_grant(settings, principal, f"{topic}.", ADMIN_OPERATIONS, "prefixed")
    yield Grant(
        principal, "group", f"{settings.kafka.topic_prefix}anabranch.", "prefixed", ("Describe",)
    )
    yield Grant(principal, "cluster", "kafka-cluster", "literal", ("Describe",))


def _build_topic_grant(
    settings: Settings,
    principal: str,
    topic: str,
    operations: tuple[str, ...],
    pattern: str = "literal",
) -> Grant:
    return Grant(principal, "topic", settings.kafka.topic_prefix + topic, pattern, operations)
