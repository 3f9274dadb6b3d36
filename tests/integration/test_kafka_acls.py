"""The rules of `topics acls` suffice for API and workers and give producers nothing more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from anabranch.doctor.connections import check_kafka as examine_kafka
from anabranch.kafka.settings import (
    build_kafka_settings,
    resolve_retention_ms,
    resolve_topic_partitions,
)
from anabranch.kafka.topic_checks import KafkaPrincipals, build_required_grants
from schemas.errors import ConfigurationError
from streams.kafka.acls import Grant
from streams.kafka.client import KafkaClientSettings
from streams.kafka.kafka_log import KafkaLog
from tests.support.eventually import eventually
from tests.support.kafka_fixture import require_kafka, run_broker
from tests.support.pipeline import run_pipeline

pytestmark = pytest.mark.kafka

USERS = (
    "admin",
    "anabranch-api",
    "anabranch-worker",
    "anabranch-admin",
    "producer",
    "crm",
    "mallory",
)
_LOGINS = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
AUTHORIZER_PROPERTIES = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" '
        f'password="admin-secret" {_LOGINS};'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller's listener, which no client is told of, has no sign-in.
    "super.users": "User:admin;User:ANONYMOUS",
}
TOPICS = ("accepted", "control", "outcomes", "embedded", "queries", "dead_letters")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    require_kafka()
    with run_broker(AUTHORIZER_PROPERTIES) as broker:
        yield broker.bootstrap_servers


def make_settings(bootstrap: str, user: str, folder: Path, *more: str) -> Settings:
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


def make_admin_client(settings: Settings) -> AdminClient:
    return AdminClient({**build_kafka_settings(settings.kafka).to_librdkafka_config()})


def create_acls(admin: AdminClient, grants: list[Grant]) -> list[AclBinding]:
    """Create the rules as the printed commands do."""
    restype = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "cluster": ResourceType.BROKER,
    }
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
        future.result(60)
    return bindings


@pytest.fixture(scope="module")
def acl_cluster(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = make_settings(bootstrap, "admin", tmp_path_factory.mktemp("admin"))

    async def create() -> None:
        log = KafkaLog(build_kafka_settings(settings.kafka))
        await log.create_topics(
            resolve_topic_partitions(settings), retention_ms=resolve_retention_ms(settings)
        )
        await log.close()

    async def wait_until_effective() -> None:
        """Wait for the rules, which take effect in the broker after it has accepted them."""
        log = KafkaLog(
            build_kafka_settings(
                make_settings(bootstrap, "anabranch-admin", settings.data_dir).kafka
            )
        )

        async def can_list_grants() -> bool:
            try:
                await log.fetch_grants()
            except ConfigurationError:
                return False
            return True

        await eventually(can_list_grants)
        await log.close()

    asyncio.run(create())
    create_acls(make_admin_client(settings), build_required_grants(settings, KafkaPrincipals()))
    asyncio.run(wait_until_effective())
    return bootstrap


def produce_and_get_error(
    bootstrap: str, user: str, topic: str, headers: dict[str, str], data: Any
) -> KafkaError | None:
    """Produce a record and return the broker's error."""
    answers: list[KafkaError | None] = []
    login = KafkaClientSettings(
        bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_username=user,
        sasl_password=f"{user}-secret",
    )
    producer = Producer({**login.to_librdkafka_config(), "log_level": 0})
    producer.produce(
        topic,
        json.dumps(data),
        headers=dict(headers),
        on_delivery=lambda error, _: answers.append(error),
    )
    assert producer.flush(20) == 0
    [answer] = answers
    return answer


def make_event(identity: str, source: str, name: str) -> tuple[dict[str, str], dict[str, Any]]:
    headers = {
        "ce_specversion": "1.0",
        "ce_id": identity,
        "ce_source": source,
        "ce_type": "document.received.v1",
        "content-type": "application/json",
    }
    return headers, {"external_id": name, "content": {"text": f"What {source} says of {name}."}}


@pytest.mark.parametrize("topic", [*TOPICS, "raw.crm"])
def test_producer_can_write_only_to_raw(acl_cluster: str, topic: str) -> None:
    refusal = produce_and_get_error(
        acl_cluster, "producer", topic, *make_event("1", "shop", "forged")
    )
    assert refusal is not None and refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


async def test_documents_are_indexed_under_the_printed_acls(
    acl_cluster: str, database: str, tmp_path: Path
) -> None:
    """The worker has no right that `topics acls` does not print; each producer writes its own
    topic.
    """
    assert (
        await asyncio.to_thread(
            produce_and_get_error, acl_cluster, "crm", "raw", *make_event("0", "crm", "a")
        )
        is not None
    )
    async with run_pipeline(
        tmp_path, database, settings=make_settings(acl_cluster, "anabranch-worker", tmp_path)
    ) as at_work:
        for user, topic, source, name in (
            ("crm", "raw.crm", "crm", "a"),
            ("producer", "raw", "shop", "b"),
            ("producer", "raw", "crm", "stolen"),
        ):
            assert (
                await asyncio.to_thread(
                    produce_and_get_error,
                    acl_cluster,
                    user,
                    topic,
                    *make_event(f"{user}-{name}", source, name),
                )
                is None
            )
        await at_work.wait_until_idle()
        await at_work.wait_for(lambda: at_work.pool.fetchval("select count(*) = 2 from visible"))
        shown = await at_work.pool.fetch(
            "select external_id, source from visible join documents on id = document_id order by 1"
        )
        assert [tuple(row) for row in shown] == [("a", "crm"), ("b", "shop")]
        await at_work.wait_for(
            lambda: at_work.pool.fetchval("select count(*) = 1 from dead_letters")
        )
        assert await at_work.pool.fetchval("select code from dead_letters") == "FORBIDDEN_TOPIC"


@contextmanager
def temporary_grant(admin: AdminClient, grant: Grant) -> Iterator[None]:
    bindings = create_acls(admin, [grant])
    yield
    filters = [
        AclBindingFilter(
            one.restype,
            one.name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in bindings
    ]
    for future in admin.delete_acls(filters).values():
        future.result(60)


async def wait_for_finding(settings: Settings, what: str) -> list[tuple[str, str, str]]:
    """Wait until a finding's detail contains `what`; return the findings.

    Rules take effect in the broker a moment after it has accepted them.
    """

    async def list_findings() -> list[tuple[str, str, str]]:
        return [(one.check, str(one.state), one.detail) for one in await examine_kafka(settings)]

    return await eventually(
        list_findings, lambda findings: any(what in detail for _, _, detail in findings)
    )


async def test_doctor_names_principals_with_write_access(acl_cluster: str, tmp_path: Path) -> None:
    admin = make_admin_client(make_settings(acl_cluster, "admin", tmp_path))
    settings = make_settings(
        acl_cluster,
        "anabranch-admin",
        tmp_path,
        "kafka.principals=User:anabranch-api,User:anabranch-worker",
    )
    assert {
        status for _, status, _ in await wait_for_finding(settings, "only this program may write")
    } == {"pass"}
    ours = ", ".join(
        topic for topic in resolve_topic_partitions(settings) if not topic.startswith("raw")
    )
    for name, pattern, seen in (
        ("con", "prefixed", "control"),
        ("*", "literal", ours),
        ("raw", "literal", None),
    ):
        with temporary_grant(admin, Grant("User:mallory", "topic", name, pattern, ("Write",))):
            if seen is None:
                await asyncio.sleep(0.5)
                assert {one.state for one in await examine_kafka(settings)} == {"pass"}
            else:
                found = await wait_for_finding(settings, "User:mallory may write")
                assert ("Kafka ACLs", "warn", f"User:mallory may write {seen}") in found
        await wait_for_finding(settings, "only this program may write")


async def test_doctor_reports_missing_permission_to_list_acls(
    acl_cluster: str, tmp_path: Path
) -> None:
    found = {
        one.check: one
        for one in await examine_kafka(make_settings(acl_cluster, "anabranch-worker", tmp_path))
    }
    assert (found["Kafka"].state, found["Kafka ACLs"].state) == ("pass", "warn")
    assert found["Kafka ACLs"].detail.startswith("unknown")


async def test_doctor_warns_about_cluster_without_authorizer(
    kafka_settings: KafkaClientSettings, tmp_path: Path
) -> None:
    sets = [
        f"kafka.bootstrap_servers={kafka_settings.bootstrap_servers}",
        f"kafka.topic_prefix={kafka_settings.topic_prefix}",
        "kafka.partitions=1",
    ]
    settings = load_settings(data_dir=tmp_path, sets=sets)
    log = KafkaLog(build_kafka_settings(settings.kafka))
    await log.create_topics(
        resolve_topic_partitions(settings), retention_ms=resolve_retention_ms(settings)
    )
    await log.close()
    _, finding = await examine_kafka(settings)
    assert (
        (finding.check, finding.state) == ("Kafka ACLs", "warn")
        and "no authorizer" in finding.detail
        and "topics acls" in finding.remedy
    )
