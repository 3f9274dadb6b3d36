"""Topics that somebody else made, or nobody, are told from those that fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from anabranch.cli import main
from anabranch.doctor.connections import kafka
from anabranch.settings_loading import load_settings
from streams.kafka.log import KafkaLog
from streams.kafka.settings import KafkaSettings
from streams.topics import ACCEPTED, CHUNKED, CONTROL, EMBEDDED, ENTITIES, OUTCOMES, QUERIES, RAW, RETENTION_MS, WEEK_MS, partition_counts
from tests.pipeline import PATIENCE_S

PARTITIONS = 2
FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def sets(kafka_settings: KafkaSettings) -> list[str]:
    named = {"bootstrap_servers": kafka_settings.bootstrap_servers, "topic_prefix": kafka_settings.topic_prefix, "partitions": PARTITIONS}
    return [f"kafka.{name}={value}" for name, value in named.items()]


async def made(kafka_settings: KafkaSettings, partitions: dict[str, int], retention_ms: dict[str, int]) -> None:
    log = KafkaLog(kafka_settings)
    try:
        await log.create_topics(partitions, retention_ms=retention_ms)
    finally:
        await log.close()


async def altered(kafka_settings: KafkaSettings, topics: Mapping[str, Mapping[str, str]]) -> None:
    """As an operator does; returns when the cluster shows it."""
    admin = AdminClient({"bootstrap.servers": kafka_settings.bootstrap_servers})
    resources = []
    for topic, settings in topics.items():
        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()]
        resources.append(ConfigResource(ResourceType.TOPIC, kafka_settings.topic_prefix + topic, incremental_configs=entries))
    for future in admin.incremental_alter_configs(resources).values():
        await asyncio.wrap_future(future)
    log = KafkaLog(kafka_settings)

    async def shown() -> bool:
        return all([settings.items() <= (await log.forgets(topic) or {}).items() for topic, settings in topics.items()])

    async with asyncio.timeout(PATIENCE_S):
        while not await shown():
            await asyncio.sleep(0.05)
    await log.close()


def verified(kafka_settings: KafkaSettings, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit status, and what was told by topic."""
    given = [argument for one in sets(kafka_settings) for argument in ("--set", one)]
    status = main(["topics", "verify", "--json", "--data", str(data_dir), *given])
    return status, {one["topic"]: one for one in json.loads(capsys.readouterr().out)["topics"]}


@pytest.mark.kafka
def test_each_topic_that_does_not_fit_is_named_with_what_to_do_and_nothing_is_mended_unasked(
    kafka_settings: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = partition_counts(PARTITIONS)
    there = {topic: count for topic, count in wanted.items() if topic != CHUNKED} | {QUERIES: 3}
    asyncio.run(made(kafka_settings, there, {topic: WEEK_MS for topic in (*RETENTION_MS, ACCEPTED) if topic != RAW}))
    given = [argument for one in sets(kafka_settings) for argument in ("--set", one)]
    verify = ["topics", "verify", "--json", "--data", str(tmp_path), *given]
    assert main(verify) == main(verify) == 1
    told = capsys.readouterr()
    topics = {one["topic"]: one for one in json.loads(told.out[: len(told.out) // 2])["topics"]}
    assert {topic for topic, one in topics.items() if one["problem"]} == {CHUNKED, QUERIES, ACCEPTED, RAW}
    assert topics[CHUNKED]["partitions"] is None and "topics create" in topics[CHUNKED]["remedy"]
    assert (topics[QUERIES]["partitions"], topics[QUERIES]["wanted"]) == (3, 1) and "3 partitions, not 1" in topics[QUERIES]["problem"]
    assert f"retention.ms={WEEK_MS}, not retention.ms=-1" in topics[ACCEPTED]["problem"] and "retention.ms=-1" in topics[ACCEPTED]["remedy"]
    assert f"retention.ms=-1, not retention.ms={WEEK_MS}" in topics[RAW]["problem"] and f"retention.ms={WEEK_MS} for topic raw" in told.err
    fitting = {"topic": EMBEDDED, "partitions": PARTITIONS, "wanted": PARTITIONS, "settings": FOR_EVER, "problem": None, "remedy": None}
    assert topics[EMBEDDED] == fitting
    findings = asyncio.run(kafka(load_settings(data_dir=tmp_path, sets=sets(kafka_settings))))
    assert {finding.name for finding in findings} - {"Kafka ACLs"} == {f"Kafka topic {topic}" for topic in (CHUNKED, QUERIES, ACCEPTED, RAW)}


@pytest.mark.kafka
def test_topics_that_this_version_made_fit(kafka_settings: KafkaSettings, tmp_path: Path) -> None:
    asyncio.run(made(kafka_settings, partition_counts(PARTITIONS), RETENTION_MS))
    given = [argument for one in sets(kafka_settings) for argument in ("--set", one)]
    assert main(["topics", "verify", "--data", str(tmp_path), *given]) == 0
    finding, acls = asyncio.run(kafka(load_settings(data_dir=tmp_path, sets=sets(kafka_settings))))
    assert finding.status == "pass" and (acls.name, acls.status) == ("Kafka ACLs", "warn")


@pytest.mark.kafka
def test_whatever_lets_a_topic_lose_records_before_its_time_or_keep_them_for_longer_is_told(
    kafka_settings: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = f"{CHUNKED}.g2"
    wrong = {
        RAW: {"retention.ms": "60000"},
        OUTCOMES: {"retention.ms": str(2 * WEEK_MS)},
        CHUNKED: {"cleanup.policy": "compact"},
        ENTITIES: {"cleanup.policy": "compact,delete"},
        ACCEPTED: {"retention.bytes": "1000000"},
        own: {"retention.ms": str(WEEK_MS)},
    }
    asyncio.run(made(kafka_settings, {**partition_counts(PARTITIONS), own: PARTITIONS, f"{EMBEDDED}.g2": PARTITIONS, "chunked.OTHERS": 1}, RETENTION_MS))
    asyncio.run(altered(kafka_settings, wrong))
    status, topics = verified(kafka_settings, tmp_path, capsys)
    assert status == 1 and topics.keys() == {*partition_counts(PARTITIONS), own, f"{EMBEDDED}.g2"}
    assert {topic for topic, one in topics.items() if one["problem"]} == wrong.keys()
    for topic, settings in wrong.items():
        [(name, value)] = settings.items()
        assert f"has {name}={value}, not {name}=" in topics[topic]["problem"] and f"Set {name}=" in topics[topic]["remedy"]
    findings = asyncio.run(kafka(load_settings(data_dir=tmp_path, sets=sets(kafka_settings))))
    assert {finding.name for finding in findings} - {"Kafka ACLs"} == {f"Kafka topic {topic}" for topic in wrong}


@pytest.mark.kafka
def test_where_the_cluster_does_not_let_us_look_nothing_is_said_against_a_topic(
    kafka_settings: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(made(kafka_settings, partition_counts(PARTITIONS), RETENTION_MS))

    def denied(client: AdminClient, resources: list[ConfigResource], **options: Any) -> dict[ConfigResource, Future[Any]]:
        return {resource: refused(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))) for resource in resources}

    monkeypatch.setattr(AdminClient, "describe_configs", denied)
    status, topics = verified(kafka_settings, tmp_path, capsys)
    assert status == 0 and {one["settings"] for one in topics.values()} == {None}
    finding, acls = asyncio.run(kafka(load_settings(data_dir=tmp_path, sets=sets(kafka_settings))))
    assert (
        acls.name == "Kafka ACLs"
        and finding.status == "warn"
        and f"the settings of {RAW}, " in finding.detail
        and CONTROL in finding.detail
        and "DescribeConfigs" in finding.fix
    )


def refused(error: KafkaException) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def test_where_the_log_is_a_table_there_is_nothing_to_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "verify", "--data", str(tmp_path)]) == 2
    assert "NEEDS_KAFKA" in capsys.readouterr().err
