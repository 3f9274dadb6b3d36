"""Access rules for Kafka: producers write only `raw`, the API and workers every other topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.config.settings import Settings
from anabranch.kafka.settings import build_kafka_settings, resolve_topic_partitions
from processors import TOPICS
from schemas.topics import OUTCOMES, RAW, Writer, get_base_topic
from streams.kafka.acls import Grant, get_principal

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
        principal,
        "group",
        f"{settings.kafka.topic_prefix}anabranch.",
        "prefixed",
        group_operations,
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
