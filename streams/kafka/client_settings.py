"""Connection settings of a Kafka cluster, for aiokafka and for librdkafka."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.errors import ConfigurationError

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
