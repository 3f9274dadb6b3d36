"""`topics verify` tells missing and misconfigured topics from correct ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from anabranch.cli import main
from anabranch.config.loader import load_settings
from anabranch.doctor.connections import check_kafka
from processors import TOPICS
from schemas.findings import Finding
from schemas.topics import (
    ACCEPTED,
    CHUNKED,
    CONTROL,
    EMBEDDED,
    ENTITIES,
    OUTCOMES,
    QUERIES,
    RAW,
    count_partitions,
    map_retention_ms,
)
from streams.kafka.client import KafkaClientSettings
from streams.kafka.kafka_log import KafkaLog
from tests.support.eventually import eventually
from tests.support.kafka_fixture import alter_topics

PARTITIONS = 2
WEEK_MS = 7 * 24 * 3600 * 1000
UNLIMITED_RETENTION = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def make_setting_overrides(kafka_settings: KafkaClientSettings) -> list[str]:
    named = {
        "bootstrap_servers": kafka_settings.bootstrap_servers,
        "topic_prefix": kafka_settings.topic_prefix,
        "partitions": PARTITIONS,
    }
    return [f"kafka.{name}={value}" for name, value in named.items()]


def make_set_arguments(kafka_settings: KafkaClientSettings) -> list[str]:
    return [part for one in make_setting_overrides(kafka_settings) for part in ("--set", one)]


def examine_kafka(kafka_settings: KafkaClientSettings, data_dir: Path) -> list[Finding]:
    sets = make_setting_overrides(kafka_settings)
    return list(asyncio.run(check_kafka(load_settings(data_dir=data_dir, sets=sets))))


async def create_topics(
    kafka_settings: KafkaClientSettings, partitions: dict[str, int], retention_ms: dict[str, int]
) -> None:
    log = KafkaLog(kafka_settings)
    try:
        await log.create_topics(partitions, retention_ms=retention_ms)
    finally:
        await log.close()


async def alter_topic_configs(
    kafka_settings: KafkaClientSettings, topics: Mapping[str, Mapping[str, str]]
) -> None:
    """Alter configs as an operator does and wait until the cluster shows them."""
    alter_topics(kafka_settings, topics)
    log = KafkaLog(kafka_settings)

    async def are_settings_visible() -> bool:
        return all(
            [
                settings.items() <= (await log.fetch_loss_settings(topic) or {}).items()
                for topic, settings in topics.items()
            ]
        )

    await eventually(are_settings_visible)
    await log.close()


def run_topics_verify(
    kafka_settings: KafkaClientSettings, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit status, and the findings by topic."""
    given = make_set_arguments(kafka_settings)
    status = main(["topics", "verify", "--json", "--data", str(data_dir), *given])
    return status, {one["topic"]: one for one in json.loads(capsys.readouterr().out)["topics"]}


@pytest.mark.kafka
def test_mismatched_topics_are_reported_with_fix_and_unchanged(
    kafka_settings: KafkaClientSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = count_partitions(TOPICS, PARTITIONS)
    there = {topic: count for topic, count in wanted.items() if topic != CHUNKED} | {QUERIES: 3}
    asyncio.run(
        create_topics(
            kafka_settings,
            there,
            {
                topic: duration
                for topic, duration in (map_retention_ms(TOPICS) | {ACCEPTED: WEEK_MS}).items()
                if topic != RAW
            },
        )
    )
    given = make_set_arguments(kafka_settings)
    verify = ["topics", "verify", "--json", "--data", str(tmp_path), *given]
    assert main(verify) == main(verify) == 1
    output = capsys.readouterr()
    topics = {one["topic"]: one for one in json.loads(output.out[: len(output.out) // 2])["topics"]}
    assert {topic for topic, one in topics.items() if one["problem"]} == {
        CHUNKED,
        QUERIES,
        ACCEPTED,
        RAW,
    }
    assert topics[CHUNKED]["partitions"] is None and "topics create" in topics[CHUNKED]["remedy"]
    assert (topics[QUERIES]["partitions"], topics[QUERIES]["wanted"]) == (
        3,
        1,
    ) and "3 partitions, not 1" in topics[QUERIES]["problem"]
    assert (
        f"retention.ms={WEEK_MS}, not retention.ms=-1" in topics[ACCEPTED]["problem"]
        and "retention.ms=-1" in topics[ACCEPTED]["remedy"]
    )
    assert (
        f"retention.ms=-1, not retention.ms={WEEK_MS}" in topics[RAW]["problem"]
        and f"retention.ms={WEEK_MS} for topic raw" in output.err
    )
    fitting = {
        "topic": EMBEDDED,
        "partitions": PARTITIONS,
        "wanted": PARTITIONS,
        "settings": UNLIMITED_RETENTION,
        "problem": None,
        "remedy": None,
    }
    assert topics[EMBEDDED] == fitting
    findings = examine_kafka(kafka_settings, tmp_path)
    assert {finding.check for finding in findings} - {"Kafka ACLs"} == {
        f"Kafka topic {topic}" for topic in (CHUNKED, QUERIES, ACCEPTED, RAW)
    }


@pytest.mark.kafka
def test_topics_created_by_this_version_pass(
    kafka_settings: KafkaClientSettings, tmp_path: Path
) -> None:
    asyncio.run(
        create_topics(
            kafka_settings, count_partitions(TOPICS, PARTITIONS), map_retention_ms(TOPICS)
        )
    )
    given = make_set_arguments(kafka_settings)
    assert main(["topics", "verify", "--data", str(tmp_path), *given]) == 0
    finding, acls = examine_kafka(kafka_settings, tmp_path)
    assert finding.state == "pass" and (acls.check, acls.state) == ("Kafka ACLs", "warn")


@pytest.mark.kafka
def test_wrong_topic_retention_is_reported(
    kafka_settings: KafkaClientSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    asyncio.run(
        create_topics(
            kafka_settings,
            {
                **count_partitions(TOPICS, PARTITIONS),
                own: PARTITIONS,
                f"{EMBEDDED}.g2": PARTITIONS,
                "chunked.OTHERS": 1,
            },
            map_retention_ms(TOPICS),
        )
    )
    asyncio.run(alter_topic_configs(kafka_settings, wrong))
    status, topics = run_topics_verify(kafka_settings, tmp_path, capsys)
    assert status == 1 and topics.keys() == {
        *count_partitions(TOPICS, PARTITIONS),
        own,
        f"{EMBEDDED}.g2",
    }
    assert {topic for topic, one in topics.items() if one["problem"]} == wrong.keys()
    for topic, settings in wrong.items():
        [(name, value)] = settings.items()
        assert (
            f"has {name}={value}, not {name}=" in topics[topic]["problem"]
            and f"Set {name}=" in topics[topic]["remedy"]
        )
    findings = examine_kafka(kafka_settings, tmp_path)
    assert {finding.check for finding in findings} - {"Kafka ACLs"} == {
        f"Kafka topic {topic}" for topic in wrong
    }


@pytest.mark.kafka
def test_unreadable_topic_config_is_not_reported_as_mismatch(
    kafka_settings: KafkaClientSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.run(
        create_topics(
            kafka_settings, count_partitions(TOPICS, PARTITIONS), map_retention_ms(TOPICS)
        )
    )

    def denied(
        client: AdminClient, resources: list[ConfigResource], **options: Any
    ) -> dict[ConfigResource, Future[Any]]:
        return {
            resource: make_failed_future(
                KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
            )
            for resource in resources
        }

    monkeypatch.setattr(AdminClient, "describe_configs", denied)
    status, topics = run_topics_verify(kafka_settings, tmp_path, capsys)
    assert status == 0 and {one["settings"] for one in topics.values()} == {None}
    finding, acls = examine_kafka(kafka_settings, tmp_path)
    assert (
        acls.check == "Kafka ACLs"
        and finding.state == "warn"
        and f"the settings of {RAW}, " in finding.detail
        and CONTROL in finding.detail
        and "DescribeConfigs" in finding.remedy
    )


def make_failed_future(error: KafkaException) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def test_postgres_log_has_no_topics_to_verify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "verify", "--data", str(tmp_path)]) == 2
    assert "NEEDS_KAFKA" in capsys.readouterr().err
