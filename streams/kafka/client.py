"""Clients of a Kafka cluster, aiokafka and librdkafka: connection settings, errors and log lines.

aiokafka's errors become retry (LogUnavailable), dead letter (LimitExceeded) or stop. The libraries
log what they raise: their levels are raised and their rates limited.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka import errors

from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    FatalError,
    LimitExceeded,
    LogUnavailable,
)

_DENIED_ERRORS = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.AuthenticationFailedError,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
)
_TOO_LARGE_ERRORS = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidMessageError,
)


def build_denied_error(detail: str) -> ConfigurationError:
    return ConfigurationError(
        detail,
        code="KAFKA_DENIED",
        remedy="Check the credentials in ANABRANCH_KAFKA__SASL_* and the cluster's access rules.",
    )


def build_unknown_topic_error(detail: str) -> ConfigurationError:
    return ConfigurationError(
        detail,
        code="NO_TOPIC",
        remedy=(
            "Create the topics with `anabranch topics create`, or check "
            "ANABRANCH_KAFKA__TOPIC_PREFIX."
        ),
    )


def translate_aiokafka_error(error: BaseException, action: str) -> AnabranchError:
    """Convert an error of aiokafka. Errors that Kafka may recover from become LogUnavailable."""
    description = f"{action}: {type(error).__name__}: {error}"
    match error:
        case AnabranchError():
            return error
        case _ if isinstance(error, _DENIED_ERRORS):
            return build_denied_error(description)
        case _ if isinstance(error, _TOO_LARGE_ERRORS):
            return LimitExceeded(
                description,
                code="RECORD_TOO_LARGE",
                remedy=(
                    "Keep records under the topic's max.message.bytes; put large content into "
                    "the blob store."
                ),
            )
        case errors.UnknownTopicOrPartitionError():
            return build_unknown_topic_error(description)
        case errors.UnsupportedVersionError() | errors.IncompatibleBrokerVersion():
            return FatalError(description, code="KAFKA_VERSION", remedy="Use Kafka 2.1 or later.")
        case _:
            return LogUnavailable(description)


# mode names a service's logger after the module of its class, hence our own for `FaustApp`.
_VERBOSE_LOGGERS = ("faust", "mode", "aiokafka", "streams.kafka.faust_app")
_RATE_LIMITED_LOGGERS = (
    "streams.kafka.subscriber",
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)
_RATE_LIMIT_S = 30.0
# librdkafka logs every refused connection, hundreds a minute.
librdkafka_logger = logging.getLogger("librdkafka")
librdkafka_logger.setLevel(logging.CRITICAL)


class RateLimitFilter(logging.Filter):
    """Pass each message text once in 30 s: aiokafka logs an unreachable broker thirty times a
    second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # structlog passes its event dictionary as the message.
        text = str(record.msg.get("event") if isinstance(record.msg, dict) else record.msg)
        if record.created - self._last_logged.get(text, 0.0) < _RATE_LIMIT_S:
            return False
        self._last_logged[text] = record.created
        return True


def install_log_filters() -> None:
    """Install levels and filters once per process. Levels that are set already stay."""
    for name in _VERBOSE_LOGGERS:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.ERROR)
    for name in _RATE_LIMITED_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, RateLimitFilter) for log_filter in logger.filters):
            logger.addFilter(RateLimitFilter())


SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True)
class KafkaClientSettings:
    """Connection settings. Only names on the cluster carry `topic_prefix`. The `ssl_` files are
    PEM.
    """

    bootstrap_servers: str
    topic_prefix: str = ""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.uses_sasl and not (self.sasl_username and self.sasl_password):
            raise ConfigurationError(
                f"Kafka's security protocol {self.security_protocol} needs a user name and a "
                "password.",
                remedy="Set ANABRANCH_KAFKA__SASL_USERNAME and ANABRANCH_KAFKA__SASL_PASSWORD.",
            )

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_ssl(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def to_aiokafka_arguments(self) -> dict[str, Any]:
        """Return arguments of aiokafka's clients.

        Raises ConfigurationError if a certificate file is unreadable.
        """
        arguments: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
        }
        if self.uses_sasl:
            arguments |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": self.sasl_password,
            }
        if self.uses_ssl:
            # aiokafka wants a context, librdkafka the paths of the files.
            arguments["ssl_context"] = self._build_ssl_context()
        return arguments

    def to_librdkafka_config(self) -> dict[str, str]:
        values = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism if self.uses_sasl else None,
            "sasl.username": self.sasl_username if self.uses_sasl else None,
            "sasl.password": self.sasl_password if self.uses_sasl else None,
            "ssl.ca.location": self.ssl_cafile if self.uses_ssl else None,
            "ssl.certificate.location": self.ssl_certfile if self.uses_ssl else None,
            "ssl.key.location": self.ssl_keyfile if self.uses_ssl else None,
            "ssl.key.password": self.ssl_key_password if self.uses_ssl else None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def _build_ssl_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ssl_cafile)
            if self.ssl_certfile:
                context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, self.ssl_key_password)
        except OSError as error:
            raise ConfigurationError(
                f"Kafka's certificate files cannot be read: {error}",
                remedy="Check ANABRANCH_KAFKA__SSL_CAFILE, SSL_CERTFILE and SSL_KEYFILE.",
            ) from error
        return context
