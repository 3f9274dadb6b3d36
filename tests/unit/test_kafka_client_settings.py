"""Cluster settings of two client libraries, their errors translated to ours, their log lines.

Settings that are passed to Faust, and its own defaults that they override.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka import errors
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from anabranch.cli import build_app
from anabranch.config.loader import load_settings
from anabranch.config.settings import LoggingSettings, Settings
from anabranch.kafka.settings import resolve_topic_partitions
from anabranch.kafka.topic_checks import (
    KafkaPrincipals,
    build_required_grants,
    find_foreign_writers,
    format_commands,
)
from anabranch.process.logs import configure_logs
from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    FatalError,
    LimitExceeded,
    LogUnavailable,
)
from streams.kafka.acls import Grant
from streams.kafka.admin import translate_librdkafka_error as translated_librdkafka
from streams.kafka.assignment import PartitionAssignment
from streams.kafka.client import (
    KafkaClientSettings,
    RateLimitFilter,
    translate_aiokafka_error,
)
from streams.kafka.faust_app import FaustApp, FaustConsumerThread
from streams.kafka.subscriber import FaustSubscriber
from streams.kafka.topic_config import (
    CLEANUP_POLICY_SETTING,
    RETENTION_SETTING,
    SIZE_SETTING,
    fetch_min_retention,
)
from tests.support.log_cases import CollectingSink

TOPIC_CONFIG = {CLEANUP_POLICY_SETTING: "delete", RETENTION_SETTING: "3600000", SIZE_SETTING: "-1"}


class FakeAdminClient:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def describe_configs(
        self, resources: list[ConfigResource], **_: Any
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        entries: Future[dict[str, ConfigEntry]] = Future()
        entries.set_result(
            {name: ConfigEntry(name, value) for name, value in self.settings.items()}
        )
        return {resources[0]: entries}


@pytest.mark.parametrize(
    ("otherwise", "expected"),
    [
        ({}, timedelta(hours=1)),
        ({RETENTION_SETTING: "-1"}, None),
        ({SIZE_SETTING: "1000000"}, None),
        ({CLEANUP_POLICY_SETTING: "compact"}, None),
        ({CLEANUP_POLICY_SETTING: "compact,delete"}, None),
    ],
)
async def test_minimum_retention_is_known_only_with_time_based_deletion(
    otherwise: dict[str, str], expected: timedelta | None
) -> None:
    assert (
        await fetch_min_retention(
            cast(AdminClient, FakeAdminClient({**TOPIC_CONFIG, **otherwise})), "raw"
        )
        == expected
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    sets = [
        "kafka.bootstrap_servers=127.0.0.1:1",
        "kafka.topic_prefix=x.",
        'ingest.topics={"raw.crm": ["crm"]}',
    ]
    return load_settings(
        data_dir=tmp_path, sets=[*sets, "kafka.principals=User:anabranch-api,User:anabranch-worker"]
    )


def list_writers(grants: list[Grant], topic: str) -> set[str]:
    return {
        grant.principal.removeprefix("User:")
        for grant in grants
        if grant.can_write and grant.covers(f"x.{topic}")
    }


def test_producers_may_write_only_their_raw_topic(settings: Settings) -> None:
    grants, ours = (
        build_required_grants(settings, KafkaPrincipals()),
        {"anabranch-api", "anabranch-worker"},
    )
    found = {
        topic: list_writers(grants, topic)
        for topic in (*resolve_topic_partitions(settings), "embedded.g2")
    }
    assert found["raw"] == {*ours, "producer"} and found["raw.crm"] == {"crm"}
    assert all(
        found[topic] and found[topic] <= ours for topic in found if not topic.startswith("raw")
    )
    assert find_foreign_writers(settings, grants) == {}


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("x.control", "literal", {"User:mallory": ["control"]}),
        ("x.acc", "prefixed", {"User:mallory": ["accepted"]}),
        ("control", "literal", {}),
        ("x.raw", "prefixed", {}),
    ],
)
def test_foreign_writers_are_detected(
    settings: Settings, name: str, pattern: str, expected: dict[str, list[str]]
) -> None:
    for operation in ("Write", "All"):
        assert (
            find_foreign_writers(
                settings, [Grant("User:mallory", "topic", name, pattern, (operation,))]
            )
            == expected
        )
    assert (
        find_foreign_writers(settings, [Grant("User:mallory", "topic", name, pattern, ("Read",))])
        == {}
    )
    assert (
        find_foreign_writers(settings, [Grant("User:mallory", "group", name, pattern, ("Write",))])
        == {}
    )


def test_acls_command_prints_table_json_and_shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def printed(*arguments: str) -> str:
        build_app()(
            ["topics", "acls", "--data", str(tmp_path), "--producer", "User:shop", *arguments],
            result_action="return_value",
        )
        return capsys.readouterr().out

    assert "User:shop" in printed()
    [raw] = [
        grant
        for grant in json.loads(printed("--json"))["acls"]
        if (grant["principal"], grant["name"]) == ("User:shop", "raw")
    ]
    assert raw == {
        "principal": "User:shop",
        "resource": "topic",
        "name": "raw",
        "pattern": "literal",
        "operations": ["Write", "Describe"],
    }
    commands = printed("--commands").splitlines()
    expected = (
        "--allow-principal 'User:shop' --operation Write --operation Describe --topic "
        "'raw' --resource-pattern-type literal"
    )
    assert all(
        command.startswith("kafka-acls.sh --bootstrap-server BOOTSTRAP_SERVER")
        for command in commands
    )
    assert sum(expected in command for command in commands) == 1
    assert (
        len(
            format_commands(
                [Grant("User:a", "cluster", "kafka-cluster", "literal", ("Describe",))], "b"
            )
        )
        == 1
    )


def make_app() -> FaustApp:
    assignment = PartitionAssignment(
        "t", lambda partition: CollectingSink(partition, auto_acknowledge=True, capacity=None)
    )
    return FaustApp(
        "g",
        "t",
        assignment,
        FaustSubscriber(KafkaClientSettings("here:9")).build_consumer_arguments("g"),
    )


async def test_faust_ignores_environment_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "APP_VERSION": "1.2.3",
        "BROKER_URL": "redis://elsewhere",
        "TIMEZONE": "Mars/Crater",
        "BROKER_COMMIT_INTERVAL": "never",
    }.items():
        monkeypatch.setenv(name, value)
    settings = make_app().conf
    assert (
        settings.id,
        [str(url) for url in settings.broker],
        settings.broker_commit_interval,
    ) == ("g", ["aiokafka://here:9"], 1.0)


async def test_seek_timeout_outlasts_broker_outage() -> None:
    assert make_app().conf.broker_request_timeout > timedelta(days=365).total_seconds(), (
        "Faust's recovery ends for good where it is not done in time"
    )


def test_plaintext_cluster_needs_only_its_address() -> None:
    settings = KafkaClientSettings("here:9092")
    assert settings.to_aiokafka_arguments() == {
        "bootstrap_servers": "here:9092",
        "security_protocol": "PLAINTEXT",
    }
    assert settings.to_librdkafka_config() == {
        "bootstrap.servers": "here:9092",
        "security.protocol": "PLAINTEXT",
    }


def test_sasl_over_tls_is_configured_for_both_libraries() -> None:
    settings = KafkaClientSettings(
        "here:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="ana",
        sasl_password="secret",
    )
    ours = settings.to_aiokafka_arguments()
    assert isinstance(ours.pop("ssl_context"), ssl.SSLContext)
    assert ours == {
        "bootstrap_servers": "here:9093",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ana",
        "sasl_plain_password": "secret",
    }
    Consumer({**settings.to_librdkafka_config(), "group.id": "accepted by the library"}).close()


def test_passwords_are_not_in_repr() -> None:
    text = repr(
        KafkaClientSettings(
            "here",
            security_protocol="SASL_PLAINTEXT",
            sasl_username="ana",
            sasl_password="secret",
            ssl_key_password="hidden",
        )
    )
    assert "secret" not in text
    assert "hidden" not in text


def test_sasl_without_password_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaClientSettings("here", security_protocol="SASL_SSL", sasl_username="ana")
    assert "ANABRANCH_KAFKA__SASL_PASSWORD" in caught.value.remedy


def test_missing_certificate_file_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        KafkaClientSettings(
            "here", security_protocol="SSL", ssl_cafile="/nowhere/ca.pem"
        ).to_aiokafka_arguments()


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (errors.KafkaConnectionError(), LogUnavailable),
        (errors.KafkaTimeoutError(), LogUnavailable),
        (errors.NotEnoughReplicasError(), LogUnavailable),
        (OSError("reset"), LogUnavailable),
        (errors.MessageSizeTooLargeError(), LimitExceeded),
        (errors.TopicAuthorizationFailedError(), ConfigurationError),
        (errors.UnknownTopicOrPartitionError(), ConfigurationError),
        (errors.UnsupportedVersionError(), FatalError),
        (ConfigurationError("ours already"), ConfigurationError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_aiokafka_errors_are_translated(error: BaseException, ours: type[AnabranchError]) -> None:
    assert type(translate_aiokafka_error(error, "trying")) is ours


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (KafkaError._TRANSPORT, LogUnavailable),
        (KafkaError._AUTHENTICATION, ConfigurationError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ConfigurationError),
    ],
)
def test_librdkafka_errors_are_translated(code: int, ours: type[AnabranchError]) -> None:
    assert type(translated_librdkafka(KafkaException(KafkaError(code)), "trying")) is ours


def test_repeated_outage_is_logged_at_intervals() -> None:
    quiet = RateLimitFilter()
    times = [(0.0, "away"), (0.1, "away"), (0.2, "other"), (29.0, "away"), (31.0, "away")]
    passed = [quiet.filter(make_log_record(1_000_000 + at, text)) for at, text in times]
    assert passed == [True, False, True, False, True]


def test_structlog_events_are_limited_by_event_name() -> None:
    rate_limit = RateLimitFilter()
    passed = [
        rate_limit.filter(
            make_log_record(1_000_000, {"event": "subscription_restarted", "attempt": attempt})
        )
        for attempt in (1, 2)
    ]
    assert passed == [True, False]


def make_log_record(created: float, text: str | dict[str, object]) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "created": created})


@pytest.mark.parametrize("session_s", [6.0, 20.0, 120.0])
def test_join_request_timeout_exceeds_rebalance_timeout(session_s: float) -> None:
    arguments = FaustSubscriber(
        KafkaClientSettings("here"), session_timeout_s=session_s
    ).build_consumer_arguments("readers")
    assert arguments["request_timeout_ms"] > max(
        arguments["rebalance_timeout_ms"], arguments["session_timeout_ms"]
    )


@pytest.fixture(autouse=True)
def _restored_levels() -> Any:
    names = ("", "mode", "mode.timers", "faust", "aiokafka", "httpx", "httpx2", "uvicorn")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_late_timers_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LoggingSettings(format="json"))
    logging.getLogger("mode.timers").warning("Timer %s is overlapping", "livelock")
    assert capsys.readouterr().err == ""
    logging.getLogger("mode.services").warning("something else")
    logging.getLogger("mode.timers").error("a failure")
    assert capsys.readouterr().err.count("\n") == 2


async def test_delayed_keep_alive_wakes_the_thread_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class DelayedThread(FaustConsumerThread):
        def __init__(self) -> None:
            self.last_wakeup_at, self.n_sleeps, self.parent_loop = (
                -1000.0,
                0,
                asyncio.get_running_loop(),
            )
            self.logger = logging.getLogger("test")

        @property
        def should_stop(self) -> bool:
            return self.n_sleeps >= 3

        async def sleep(self, n: Any, **_: Any) -> None:
            self.n_sleeps += bool(n)

    thread = DelayedThread()
    await thread._keepalive2()
    assert thread.last_wakeup_at > 0 and not caplog.records
    await asyncio.sleep(0)
