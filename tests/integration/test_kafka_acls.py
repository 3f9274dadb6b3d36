"""A broker with an authorizer, and the access rules that `topics acls` prints: enough for the API and workers, and nothing more for producers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

from anabranch.composition.acls import Principals, required_grants
from anabranch.composition.storage import kafka_of, retention_of, topics_of
from anabranch.doctor.connections import kafka as examine_kafka
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from schemas.errors import ConfigurationError
from streams.kafka.acls import Grant
from streams.kafka.log import KafkaLog
from streams.kafka.settings import KafkaSettings
from tests.kafka_fixture import need_kafka, own_broker
from tests.pipeline import pipeline

pytestmark = pytest.mark.kafka

USERS = ("admin", "anabranch-api", "anabranch-worker", "anabranch-admin", "producer", "crm", "mallory")
_LOGINS = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
WITH_AUTHORIZER = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" {_LOGINS};'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller's listener, which no client is told of, has no sign-in.
    "super.users": "User:admin;User:ANONYMOUS",
}
TOPICS = ("accepted", "control", "outcomes", "embedded", "queries", "dead_letters")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    need_kafka()
    with own_broker(WITH_AUTHORIZER) as broker:
        yield broker.bootstrap_servers


def settings_of(bootstrap: str, user: str, folder: Path, *more: str) -> Settings:
    sets = [
        f"kafka.bootstrap_servers={bootstrap}",
        "kafka.security_protocol=SASL_PLAINTEXT",
        f"kafka.sasl_username={user}",
        f"kafka.sasl_password={user}-secret",
        "kafka.partitions=2",
        'ingest.sources={"crm": ["default"], "shop": ["default"]}',
        'ingest.topics={"raw.crm": ["crm"]}',
        *more,
    ]
    return load_settings(data_dir=folder, sets=sets)


def client_of(settings: Settings) -> AdminClient:
    return AdminClient({**kafka_of(settings.kafka).for_librdkafka()})


def apply(admin: AdminClient, grants: list[Grant]) -> list[AclBinding]:
    """As the printed commands do."""
    restype = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER}
    operations = {operation.name.replace("_", ""): operation for operation in AclOperation}
    bindings = [
        AclBinding(
            restype[grant.resource],
            grant.name,
            ResourcePatternType[grant.pattern.upper()],
            grant.principal,
            "*",
            operations[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for grant in grants
        for operation in grant.operations
    ]
    for future in admin.create_acls(bindings).values():
        future.result(10)
    return bindings


@pytest.fixture(scope="module")
def guarded(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = settings_of(bootstrap, "admin", tmp_path_factory.mktemp("admin"))

    async def create() -> None:
        log = KafkaLog(kafka_of(settings.kafka))
        await log.create_topics(topics_of(settings), retention_ms=retention_of(settings))
        await log.close()

    async def seen_by_admin() -> None:
        """Rules reach the broker a moment after they were accepted."""
        log = KafkaLog(kafka_of(settings_of(bootstrap, "anabranch-admin", settings.data_dir).kafka))
        async with asyncio.timeout(20):
            while True:
                try:
                    await log.grants()
                    break
                except ConfigurationError:
                    await asyncio.sleep(0.1)
        await log.close()

    asyncio.run(create())
    apply(client_of(settings), required_grants(settings, Principals()))
    asyncio.run(seen_by_admin())
    return bootstrap


def send(bootstrap: str, user: str, topic: str, headers: dict[str, str], data: Any) -> KafkaError | None:
    """What the broker says."""
    answers: list[KafkaError | None] = []
    login = KafkaSettings(bootstrap, security_protocol="SASL_PLAINTEXT", sasl_username=user, sasl_password=f"{user}-secret")
    producer = Producer({**login.for_librdkafka(), "log_level": 0})
    producer.produce(topic, json.dumps(data), headers=dict(headers), on_delivery=lambda error, _: answers.append(error))
    assert producer.flush(20) == 0
    [answer] = answers
    return answer


def event(identity: str, source: str, name: str) -> tuple[dict[str, str], dict[str, Any]]:
    headers = {"ce_specversion": "1.0", "ce_id": identity, "ce_source": source, "ce_type": "document.received.v1", "content-type": "application/json"}
    return headers, {"external_id": name, "content": {"text": f"What {source} says of {name}."}}


@pytest.mark.parametrize("topic", [*TOPICS, "raw.crm"])
def test_producer_may_not_write_any_topic_but_raw(guarded: str, topic: str) -> None:
    refusal = send(guarded, "producer", topic, *event("1", "shop", "forged"))
    assert refusal is not None and refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


async def test_documents_come_through_under_the_printed_rules_and_stay_their_producers(guarded: str, database: str, tmp_path: Path) -> None:
    """The worker has no right that `topics acls` does not print; each producer writes its own topic."""
    assert await asyncio.to_thread(send, guarded, "crm", "raw", *event("0", "crm", "a")) is not None
    async with pipeline(tmp_path, database, settings=settings_of(guarded, "anabranch-worker", tmp_path)) as at_work:
        for user, topic, source, name in (("crm", "raw.crm", "crm", "a"), ("producer", "raw", "shop", "b"), ("producer", "raw", "crm", "stolen")):
            assert await asyncio.to_thread(send, guarded, user, topic, *event(f"{user}-{name}", source, name)) is None
        await at_work.quiet()
        await at_work.until(lambda: at_work.pool.fetchval("select count(*) = 2 from visible"))
        shown = await at_work.pool.fetch("select external_id, source from visible join documents on id = document_id order by 1")
        assert [tuple(row) for row in shown] == [("a", "crm"), ("b", "shop")]
        await at_work.until(lambda: at_work.pool.fetchval("select count(*) = 1 from dead_letters"))
        assert await at_work.pool.fetchval("select code from dead_letters") == "FORBIDDEN_TOPIC"


@contextmanager
def granted(admin: AdminClient, grant: Grant) -> Iterator[None]:
    bindings = apply(admin, [grant])
    yield
    filters = [
        AclBindingFilter(one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type) for one in bindings
    ]
    for future in admin.delete_acls(filters).values():
        future.result(10)


async def until_told(settings: Settings, what: str) -> list[tuple[str, str, str]]:
    """Rules reach the broker a moment after they were accepted."""
    async with asyncio.timeout(20):
        while True:
            found = [(one.name, str(one.status), one.detail) for one in await examine_kafka(settings)]
            if any(what in detail for _, _, detail in found):
                return found
            await asyncio.sleep(0.1)


async def test_doctor_names_principals_that_may_write_our_topics(guarded: str, tmp_path: Path) -> None:
    admin = client_of(settings_of(guarded, "admin", tmp_path))
    settings = settings_of(guarded, "anabranch-admin", tmp_path, "kafka.principals=User:anabranch-api,User:anabranch-worker")
    assert {status for _, status, _ in await until_told(settings, "nobody else may write")} == {"pass"}
    ours = ", ".join(topic for topic in topics_of(settings) if not topic.startswith("raw"))
    for name, pattern, seen in (("con", "prefixed", "control"), ("*", "literal", ours), ("raw", "literal", None)):
        with granted(admin, Grant("User:mallory", "topic", name, pattern, ("Write",))):
            if seen is None:
                await asyncio.sleep(0.5)
                assert {one.status for one in await examine_kafka(settings)} == {"pass"}
            else:
                found = await until_told(settings, "User:mallory may write")
                assert ("Kafka ACLs", "warn", f"User:mallory may write {seen}") in found
        await until_told(settings, "nobody else may write")


async def test_doctor_says_when_it_may_not_look_at_the_rules(guarded: str, tmp_path: Path) -> None:
    found = {one.name: one for one in await examine_kafka(settings_of(guarded, "anabranch-worker", tmp_path))}
    assert (found["Kafka"].status, found["Kafka ACLs"].status) == ("pass", "warn")
    assert found["Kafka ACLs"].detail.startswith("not known")


async def test_doctor_warns_where_the_cluster_has_no_authorizer(kafka_settings: KafkaSettings, tmp_path: Path) -> None:
    sets = [f"kafka.bootstrap_servers={kafka_settings.bootstrap_servers}", f"kafka.topic_prefix={kafka_settings.topic_prefix}", "kafka.partitions=1"]
    settings = load_settings(data_dir=tmp_path, sets=sets)
    log = KafkaLog(kafka_of(settings.kafka))
    await log.create_topics(topics_of(settings), retention_ms=retention_of(settings))
    await log.close()
    _, finding = await examine_kafka(settings)
    assert (finding.name, finding.status) == ("Kafka ACLs", "warn") and "no access rules" in finding.detail and "topics acls" in finding.fix
