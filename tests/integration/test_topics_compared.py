"""Topics that somebody else made, or nobody, are told from those that fit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.doctor.connections import kafka
from anabranch.settings_loading import load_settings
from streams.kafka.log import KafkaLog
from streams.kafka.settings import KafkaSettings
from streams.topics import ACCEPTED, CHUNKED, EMBEDDED, QUERIES, RAW, RETENTION_MS, WEEK_MS, partition_counts

PARTITIONS = 2


def sets(kafka_settings: KafkaSettings) -> list[str]:
    named = {"bootstrap_servers": kafka_settings.bootstrap_servers, "topic_prefix": kafka_settings.topic_prefix, "partitions": PARTITIONS}
    return [f"kafka.{name}={value}" for name, value in named.items()]


async def made(kafka_settings: KafkaSettings, partitions: dict[str, int], retention_ms: dict[str, int]) -> None:
    log = KafkaLog(kafka_settings)
    try:
        await log.create_topics(partitions, retention_ms=retention_ms)
    finally:
        await log.close()


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
    assert "forgets" in topics[ACCEPTED]["problem"] and "retention.ms=-1" in topics[ACCEPTED]["remedy"]
    assert "for ever" in topics[RAW]["problem"] and f"retention.ms={WEEK_MS}" in told.err
    assert topics[EMBEDDED] == {"topic": EMBEDDED, "partitions": PARTITIONS, "wanted": PARTITIONS, "kept_s": None, "problem": None, "remedy": None}
    findings = asyncio.run(kafka(load_settings(data_dir=tmp_path, sets=sets(kafka_settings))))
    assert {finding.name for finding in findings} == {f"Kafka topic {topic}" for topic in (CHUNKED, QUERIES, ACCEPTED, RAW)}


@pytest.mark.kafka
def test_topics_that_this_version_made_fit(kafka_settings: KafkaSettings, tmp_path: Path) -> None:
    asyncio.run(made(kafka_settings, partition_counts(PARTITIONS), RETENTION_MS))
    given = [argument for one in sets(kafka_settings) for argument in ("--set", one)]
    assert main(["topics", "verify", "--data", str(tmp_path), *given]) == 0
    [finding] = asyncio.run(kafka(load_settings(data_dir=tmp_path, sets=sets(kafka_settings))))
    assert finding.status == "pass"


def test_where_the_log_is_a_table_there_is_nothing_to_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "verify", "--data", str(tmp_path)]) == 2
    assert "NEEDS_KAFKA" in capsys.readouterr().err
