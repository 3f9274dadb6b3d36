"""Conversion of aiokafka's errors: retry (LogUnavailable), dead-letter (LimitExceeded) or stop."""

from __future__ import annotations

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
