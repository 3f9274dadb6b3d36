"""Kafka client settings and the layout of our topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.ports.consumers import OffsetStore

if TYPE_CHECKING:
    from streams.kafka.kafka_log import KafkaLog
    from streams.kafka.subscriber import FaustSubscriber

from anabranch.config.settings import KafkaSettings as KafkaOptions
from anabranch.config.settings import Settings
from processors import TOPICS
from schemas.topics import RAW, count_partitions, map_retention_ms
from streams.kafka.client import KafkaClientSettings


def resolve_topic_partitions(settings: Settings) -> dict[str, int]:
    """Map every topic, including `raw.NAME` of producers, to its number of partitions."""
    return count_partitions(TOPICS, settings.kafka.partitions) | dict.fromkeys(
        settings.ingest.topics, settings.kafka.partitions
    )


def resolve_retention_ms(settings: Settings) -> dict[str, int]:
    retention_ms = map_retention_ms(TOPICS)
    # Topics of producers are unencrypted like `raw`, and expire like it.
    return retention_ms | dict.fromkeys(settings.ingest.topics, retention_ms[RAW])


async def wait_for_kafka(settings: Settings) -> None:
    """Wait until Kafka responds; return at once on the Postgres log. Raises LogUnavailable after
    `kafka.start_timeout_s`.
    """
    if settings.log_kind != "kafka":
        return
    from streams.kafka.kafka_log import KafkaLog

    log = KafkaLog(build_kafka_settings(settings.kafka))
    try:
        await log.wait_until_reachable(settings.kafka.start_timeout_s)
    finally:
        await log.close()


def build_kafka_settings(options: KafkaOptions) -> KafkaClientSettings:
    password = options.sasl_password
    return KafkaClientSettings(
        bootstrap_servers=options.bootstrap_servers or "",
        topic_prefix=options.topic_prefix,
        security_protocol=options.security_protocol,
        sasl_mechanism=options.sasl_mechanism,
        sasl_username=options.sasl_username,
        sasl_password=password.get_secret_value() if password else None,
        ssl_cafile=str(options.ssl_cafile) if options.ssl_cafile else None,
        ssl_certfile=str(options.ssl_certfile) if options.ssl_certfile else None,
        ssl_keyfile=str(options.ssl_keyfile) if options.ssl_keyfile else None,
    )


def open_kafka(
    settings: Settings, offset_store: OffsetStore, *, topic_prefix: str | None = None
) -> tuple[KafkaLog, FaustSubscriber]:
    """Open log and subscriber; `topic_prefix` replaces the prefix of the settings. Imports Faust,
    which takes a second.
    """
    from streams.kafka.kafka_log import KafkaLog
    from streams.kafka.subscriber import FaustSubscriber

    kafka = build_kafka_settings(settings.kafka)
    if topic_prefix is not None:
        kafka = replace(kafka, topic_prefix=topic_prefix)
    return KafkaLog(kafka), FaustSubscriber(
        kafka, session_timeout_s=settings.kafka.session_timeout_s, offset_store=offset_store
    )
