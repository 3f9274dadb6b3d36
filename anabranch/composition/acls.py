"""Access rules for Kafka: producers write only `raw`; the API and workers write every other topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.composition.storage import kafka_of, topics_of
from anabranch.settings import Settings
from streams.codec import base_topic
from streams.kafka.acls import Grant, principal_of
from streams.topics import CHUNKED, CONTROL, DEAD_LETTERS, EMBEDDED, ENTITIES, FEEDBACK, OCR_DONE, OUTCOMES, QUERIES, RAW

API_WRITES = (RAW, QUERIES, FEEDBACK, CONTROL, DEAD_LETTERS)
API_ONLY = (QUERIES, FEEDBACK)
OF_GENERATIONS = (OCR_DONE, CHUNKED, ENTITIES, EMBEDDED)
"""Topics that a generation may have of its own, such as `embedded.g2`: they come and go with it."""
READ = ("Read", "Describe", "DescribeConfigs")
ADMINISTER = ("Create", "Delete", "Alter", "AlterConfigs", "Describe", "DescribeConfigs")


@dataclass(frozen=True, slots=True)
class Principals:
    """As the cluster names them. A producer with a topic `raw.NAME` is `User:NAME`."""

    api: str = "User:anabranch-api"
    worker: str = "User:anabranch-worker"
    producer: str = "User:producer"
    admin: str = "User:anabranch-admin"


def required_grants(settings: Settings, principals: Principals) -> list[Grant]:
    return [
        *_of_api(settings, principals.api),
        *_of_worker(settings, principals.worker),
        *_of_producers(settings, principals),
        *_of_admin(settings, principals.admin),
    ]


def as_commands(grants: Sequence[Grant], bootstrap: str) -> list[str]:
    """For the shell, as Kafka's own tool takes them."""
    return [_command(grant, bootstrap) for grant in grants]


def foreign_writers(settings: Settings, grants: Sequence[Grant]) -> dict[str, list[str]]:
    """Principals that are none of ours → topics of ours that they may write, `raw` and the producers' own aside."""
    ours = set(settings.kafka.principals) or {principal_of(kafka_of(settings.kafka))}
    found: dict[str, list[str]] = {}
    for topic in topics_of(settings):
        for grant in grants:
            if base_topic(topic) != RAW and grant.writes and grant.principal not in ours and grant.covers(settings.kafka.topic_prefix + topic):
                found.setdefault(grant.principal, []).append(topic)
    return {principal: list(dict.fromkeys(topics)) for principal, topics in found.items()}


def _of_api(settings: Settings, principal: str) -> Iterator[Grant]:
    for topic in topics_of(settings):
        yield _topic(settings, principal, topic, (*READ, *(("Write",) if topic in API_WRITES else ())))
    for topic in OF_GENERATIONS:
        yield _topic(settings, principal, f"{topic}.", (*READ, "Create", "Delete"), "prefixed")
    yield Grant(principal, "group", f"{settings.kafka.topic_prefix}anabranch.", "prefixed", ("Describe",))


def _of_worker(settings: Settings, principal: str) -> Iterator[Grant]:
    for topic in topics_of(settings):
        yield _topic(settings, principal, topic, (*READ, *(() if topic in API_ONLY or topic in settings.ingest.topics else ("Write",))))
    for topic in OF_GENERATIONS:
        yield _topic(settings, principal, f"{topic}.", (*READ, "Write", "Create", "Delete"), "prefixed")
    yield Grant(principal, "group", f"{settings.kafka.topic_prefix}anabranch.", "prefixed", ("Read", "Describe"))


def _of_producers(settings: Settings, principals: Principals) -> Iterator[Grant]:
    named = {topic: f"User:{topic.partition('.')[2]}" for topic in settings.ingest.topics}
    for topic, principal in {RAW: principals.producer, **named}.items():
        yield _topic(settings, principal, topic, ("Write", "Describe"))
        yield _topic(settings, principal, OUTCOMES, ("Read", "Describe"))
        yield Grant(principal, "group", f"{principal.partition(':')[2]}.", "prefixed", ("Read", "Describe"))


def _of_admin(settings: Settings, principal: str) -> Iterator[Grant]:
    for topic in topics_of(settings):
        yield _topic(settings, principal, topic, ADMINISTER)
    for topic in OF_GENERATIONS:
        yield _topic(settings, principal, f"{topic}.", ADMINISTER, "prefixed")
    yield Grant(principal, "group", f"{settings.kafka.topic_prefix}anabranch.", "prefixed", ("Describe",))
    yield Grant(principal, "cluster", "kafka-cluster", "literal", ("Describe",))


def _topic(settings: Settings, principal: str, topic: str, operations: tuple[str, ...], pattern: str = "literal") -> Grant:
    return Grant(principal, "topic", settings.kafka.topic_prefix + topic, pattern, operations)


def _command(grant: Grant, bootstrap: str) -> str:
    operations = " ".join(f"--operation {operation}" for operation in grant.operations)
    resource = "--cluster" if grant.resource == "cluster" else f"--{grant.resource} '{grant.name}' --resource-pattern-type {grant.pattern}"
    return f"kafka-acls.sh --bootstrap-server {bootstrap} --command-config admin.properties --add --allow-principal '{grant.principal}' {operations} {resource}"
