"""Cluster settings translated to two client libraries, and their errors to ours."""

from __future__ import annotations

import logging
import ssl

import pytest
from aiokafka import errors
from confluent_kafka import Consumer, KafkaError, KafkaException

from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    FatalError,
    LimitExceeded,
    LogUnavailable,
)
from streams.kafka.admin import translate_librdkafka_error as translated_librdkafka
from streams.kafka.client_settings import KafkaClientSettings
from streams.kafka.errors import translate_aiokafka_error
from streams.kafka.log_filters import RateLimitFilter
from streams.kafka.subscriber import FaustSubscriber


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
