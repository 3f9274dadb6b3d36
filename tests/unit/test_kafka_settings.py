"""One description of a cluster, in the words of two libraries; and their errors in ours."""

from __future__ import annotations

import logging
import ssl

import pytest
from aiokafka import errors
from confluent_kafka import Consumer, KafkaError, KafkaException

from schemas.errors import AnabranchError, ConfigurationError, FatalError, LimitExceeded, LogUnavailable
from streams.kafka.administration import translated as translated_librdkafka
from streams.kafka.quiet import OnceInAWhile
from streams.kafka.refusals import translated
from streams.kafka.settings import KafkaSettings
from streams.kafka.worker import FaustSubscriber


def test_a_plain_cluster_needs_its_address_only() -> None:
    settings = KafkaSettings("here:9092")
    assert settings.for_aiokafka() == {"bootstrap_servers": "here:9092", "security_protocol": "PLAINTEXT"}
    assert settings.for_librdkafka() == {"bootstrap.servers": "here:9092", "security.protocol": "PLAINTEXT"}


def test_sasl_over_tls_reaches_both_libraries() -> None:
    settings = KafkaSettings("here:9093", security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="ana", sasl_password="secret")
    ours = settings.for_aiokafka()
    assert isinstance(ours.pop("ssl_context"), ssl.SSLContext)
    assert ours == {
        "bootstrap_servers": "here:9093",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ana",
        "sasl_plain_password": "secret",
    }
    Consumer({**settings.for_librdkafka(), "group.id": "accepted by the library"}).close()


def test_passwords_are_not_shown() -> None:
    shown = repr(KafkaSettings("here", security_protocol="SASL_PLAINTEXT", sasl_username="ana", sasl_password="secret", ssl_key_password="hidden"))
    assert "secret" not in shown
    assert "hidden" not in shown


def test_sasl_without_a_password_is_refused_with_the_settings_names() -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaSettings("here", security_protocol="SASL_SSL", sasl_username="ana")
    assert "ANABRANCH_KAFKA__SASL_PASSWORD" in caught.value.remedy


def test_missing_certificate_files_are_a_matter_of_configuration() -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        KafkaSettings("here", security_protocol="SSL", ssl_cafile="/nowhere/ca.pem").for_aiokafka()


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
def test_errors_are_named_by_what_happens_next(error: BaseException, ours: type[AnabranchError]) -> None:
    assert type(translated(error, "trying")) is ours


@pytest.mark.parametrize(
    ("code", "ours"),
    [(KafkaError._TRANSPORT, LogUnavailable), (KafkaError._AUTHENTICATION, ConfigurationError), (KafkaError.UNKNOWN_TOPIC_OR_PART, ConfigurationError)],
)
def test_errors_of_the_other_library_too(code: int, ours: type[AnabranchError]) -> None:
    assert type(translated_librdkafka(KafkaException(KafkaError(code)), "trying")) is ours


def test_an_outage_is_logged_once_in_a_while() -> None:
    quiet = OnceInAWhile()
    times = [(0.0, "away"), (0.1, "away"), (0.2, "other"), (29.0, "away"), (31.0, "away")]
    passed = [quiet.filter(record_at(1_000_000 + at, text)) for at, text in times]
    assert passed == [True, False, True, False, True]


def record_at(created: float, text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "created": created})


@pytest.mark.parametrize("session_s", [6.0, 20.0, 120.0])
def test_who_joins_a_group_waits_longer_for_the_answer_than_the_broker_waits_for_the_others(session_s: float) -> None:
    arguments = FaustSubscriber(KafkaSettings("here"), session_timeout_s=session_s).consumer_arguments("readers")
    assert arguments["request_timeout_ms"] > max(arguments["rebalance_timeout_ms"], arguments["session_timeout_ms"])
