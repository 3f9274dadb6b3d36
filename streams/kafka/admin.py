"""Administration of a Kafka cluster: topics, offsets, access rules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from schemas.errors import AnabranchError, ConfigurationError, LogUnavailable
from streams.kafka.acls import Grant, fetch_grants
from streams.kafka.client import (
    KafkaClientSettings,
    build_denied_error,
    build_unknown_topic_error,
    librdkafka_logger,
)
from streams.kafka.topic_config import (
    build_retention_config,
    check_timestamp_types,
    fetch_loss_settings,
    fetch_max_retention,
    fetch_min_retention,
)

T = TypeVar("T")
log = structlog.get_logger(__name__)
_TIMEOUT_S = 10.0
_PROBE_TIMEOUT_S = 1.0
_LEADERLESS_RETRIES = 30
_DENIED_CODES = (
    KafkaError._AUTHENTICATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_UNKNOWN_CODES = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


class KafkaAdmin:
    """Administration of the topics of an `EventLog`, connected on first use."""

    def __init__(self, settings: KafkaClientSettings) -> None:
        self._settings = settings
        # Keep a reference: the futures of a garbage-collected AdminClient fail with _DESTROY.
        self._client: AdminClient | None = None
        self._denied_error: KafkaError | None = None

    async def create_topics(
        self, partitions: Mapping[str, int], retention_ms: Mapping[str, int]
    ) -> None:
        """See `EventLog.create_topics`. Another process may create the same topics at the same
        time.
        """
        missing_topics = partitions.keys() - (await self._check_partition_counts(partitions))
        if missing_topics:
            await self._create_missing_topics(missing_topics, partitions, retention_ms)
        await self._check_clocks(partitions)

    async def delete_topics(self, topics: Collection[str]) -> None:
        """See `EventLog.delete_topics`. Return when the cluster no longer lists them."""
        requested_names = {self._settings.topic_prefix + topic for topic in topics}
        names = sorted(requested_names & (await self._fetch_partition_counts()).keys())
        if not names:
            return
        futures = await self._call(
            lambda client: client.delete_topics(
                names, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S
            )
        )
        for name, future in futures.items():
            with _translate_errors(f"Deleting topic {name} failed", ignored=_UNKNOWN_CODES):
                await asyncio.wrap_future(future)
        for _ in range(100):
            if not set(names) & (await self._fetch_partition_counts()).keys():
                return
            await asyncio.sleep(0.1)

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """See `EventLog.fetch_offset_bounds`. Records of an open transaction do not count."""
        name = self._settings.topic_prefix + topic
        topic_partitions = [
            TopicPartition(name, partition)
            for partition in range(await self.fetch_partition_count(topic))
        ]
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        first_offsets = await self._list_offsets(topic_partitions, earliest)
        end_offsets = await self._list_offsets(topic_partitions, latest)
        return {
            partition: (first_offsets[partition], end_offsets[partition])
            for partition in first_offsets
        }

    async def wait_until_reachable(self, timeout_s: float) -> None:
        """Wait for a broker to answer. Raises LogUnavailable on time-out."""
        loop = asyncio.get_running_loop()
        deadline, logged = loop.time() + timeout_s, False
        while True:
            try:
                await self._call(lambda client: client.list_topics(timeout=_PROBE_TIMEOUT_S))
                return
            except LogUnavailable as error:
                if loop.time() > deadline:
                    raise LogUnavailable(
                        f"Kafka at {self._settings.bootstrap_servers} did not answer within "
                        f"{timeout_s:g} s.",
                        code="KAFKA_UNREACHABLE",
                        remedy=(
                            "Start Kafka, or correct ANABRANCH_KAFKA__BOOTSTRAP_SERVERS. To wait "
                            "longer, raise ANABRANCH_KAFKA__START_TIMEOUT_S."
                        ),
                    ) from error
            if not logged:
                log.warning(
                    "kafka_unreachable",
                    bootstrap_servers=self._settings.bootstrap_servers,
                    timeout_s=timeout_s,
                )
                logged = True
            await asyncio.sleep(_PROBE_TIMEOUT_S / 5)

    async def list_topics(self) -> list[str]:
        """Return existing topics, without the topic prefix."""
        prefix = self._settings.topic_prefix
        return sorted(
            name.removeprefix(prefix)
            for name in await self._fetch_partition_counts()
            if name.startswith(prefix)
        )

    async def fetch_partition_count(self, topic: str) -> int:
        """Return the number of partitions.

        Raises ConfigurationError if the topic does not exist, LogUnavailable if no broker answers.
        """
        name = self._settings.topic_prefix + topic
        metadata = await self._call(lambda client: client.list_topics(name, timeout=_TIMEOUT_S))
        topic_metadata = metadata.topics[name]
        if topic_metadata.error is not None:
            raise translate_librdkafka_error(
                KafkaException(topic_metadata.error), f"Describing topic {name} failed"
            )
        return len(topic_metadata.partitions)

    async def _check_partition_counts(self, partitions: Mapping[str, int]) -> set[str]:
        """Return the topics that exist. Raises ConfigurationError if one has another partition
        count.
        """
        existing = await self._fetch_partition_counts()
        for topic, count in partitions.items():
            existing_count = existing.get(self._settings.topic_prefix + topic)
            if existing_count is not None and existing_count != count:
                raise ConfigurationError(
                    f"Topic {self._settings.topic_prefix}{topic} has {existing_count} partitions, "
                    f"not {count}.",
                    code="PARTITIONS_MISMATCH",
                    remedy=(
                        f"Set ANABRANCH_KAFKA__PARTITIONS to {existing_count}, or use another "
                        "ANABRANCH_KAFKA__TOPIC_PREFIX."
                    ),
                )
        return {topic for topic in partitions if self._settings.topic_prefix + topic in existing}

    async def fetch_max_retention(self, topic: str) -> timedelta | None:
        return await self._query_topic_config(fetch_max_retention, topic)

    async def fetch_min_retention(self, topic: str) -> timedelta | None:
        return await self._query_topic_config(fetch_min_retention, topic)

    async def fetch_loss_settings(self, topic: str) -> Mapping[str, str] | None:
        """Return settings by which the topic loses records, by Kafka's names; None if access is
        denied.
        """
        return await self._query_topic_config(fetch_loss_settings, topic)

    async def _query_topic_config(
        self, query: Callable[[AdminClient, str], Awaitable[T]], topic: str
    ) -> T:
        """Run a query of `streams.kafka.topic_config` on a topic."""
        client = await self._call(lambda client: client)
        with _translate_errors(f"Reading the settings of topic {topic} failed"):
            return await query(client, self._settings.topic_prefix + topic)

    async def fetch_grants(self) -> list[Grant] | None:
        """Return the cluster's access rules, or None if it has no authorizer.

        Raises ConfigurationError with code KAFKA_DENIED if this principal may not read them.
        """
        client = await self._call(lambda client: client)
        with _translate_errors("Reading the cluster's access rules failed"):
            return await fetch_grants(client)

    async def _check_clocks(self, partitions: Mapping[str, int]) -> None:
        client = await self._call(lambda client: client)
        with _translate_errors("Reading the settings of topics failed"):
            await check_timestamp_types(
                client,
                self._settings.bootstrap_servers,
                [self._settings.topic_prefix + topic for topic in partitions],
            )

    async def _fetch_partition_counts(self) -> dict[str, int]:
        metadata = await self._call(lambda client: client.list_topics(timeout=_TIMEOUT_S))
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    async def _create_missing_topics(
        self,
        missing_topics: Collection[str],
        partitions: Mapping[str, int],
        retention_ms: Mapping[str, int],
    ) -> None:
        """Create topics and wait until the cluster lists all of `partitions`."""
        new_topics = [
            NewTopic(
                self._settings.topic_prefix + topic,
                num_partitions=partitions[topic],
                # -1: the default, since only the cluster's operator knows the number of brokers.
                replication_factor=-1,
                # The broker's clock orders documents: see `check_timestamp_types`.
                config={"message.timestamp.type": "LogAppendTime"}
                | build_retention_config(retention_ms.get(topic, -1)),
            )
            for topic in sorted(missing_topics)
        ]
        futures = await self._call(
            lambda client: client.create_topics(
                new_topics, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S
            )
        )
        for name, future in futures.items():
            # Another process created it first.
            ignored = (KafkaError.TOPIC_ALREADY_EXISTS,)
            with _translate_errors(f"Creating topic {name} failed", ignored=ignored):
                await asyncio.wrap_future(future)
        for _ in range(100):
            if await self._check_partition_counts(partitions) == set(partitions):
                return
            await asyncio.sleep(0.1)
        raise LogUnavailable(
            "Topics were created, but Kafka does not list them yet: "
            f"{', '.join(sorted(partitions))}."
        )

    async def _list_offsets(
        self, topic_partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[int, int]:
        # Retry: after a topic is created or a broker is lost, leaders are not yet known to every
        # broker.
        for _ in range(_LEADERLESS_RETRIES):
            try:
                return await self._list_offsets_once(topic_partitions, spec)
            except LogUnavailable as error:
                log.debug("request_retried", detail=error.detail)
                await asyncio.sleep(0.1)
        return await self._list_offsets_once(topic_partitions, spec)

    async def _list_offsets_once(
        self, topic_partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[int, int]:
        requests = dict.fromkeys(topic_partitions, spec)
        futures = await self._call(
            lambda client: client.list_offsets(
                requests, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
            )
        )
        with _translate_errors("Listing offsets failed"):
            results = await asyncio.gather(*map(asyncio.wrap_future, futures.values()))
        return {
            topic_partition.partition: result.offset
            for topic_partition, result in zip(futures, results, strict=True)
        }

    async def _call(self, call_client: Callable[[AdminClient], Any]) -> Any:
        if self._client is None:
            configuration: dict[str, Any] = {
                **self._settings.to_librdkafka_config(),
                "client.id": "anabranch-administration",
                "error_cb": self._on_error,
            }
            self._client = AdminClient(configuration, logger=librdkafka_logger)
        self._denied_error = None
        try:
            return await asyncio.to_thread(call_client, self._client)
        except KafkaException as error:
            self._client.poll(0)  # runs `_on_error`
            raise translate_librdkafka_error(
                KafkaException(self._denied_error) if self._denied_error else error,
                "A request to Kafka failed",
            ) from error

    def _on_error(self, error: KafkaError) -> None:
        # A refused password makes the call itself fail like an unreachable broker; only this
        # callback gets the cause.
        if error.code() in _DENIED_CODES:
            self._denied_error = error


@contextmanager
def _translate_errors(action: str, *, ignored: Collection[int] = ()) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() not in ignored:
            raise translate_librdkafka_error(error, action) from error


def translate_librdkafka_error(error: KafkaException, action: str) -> AnabranchError:
    """Convert an error of librdkafka. Errors that Kafka may recover from become LogUnavailable."""
    cause = error.args[0]
    description = f"{action}: {cause.str()}"
    if cause.code() in _DENIED_CODES:
        return build_denied_error(description)
    if cause.code() in _UNKNOWN_CODES:
        return build_unknown_topic_error(description)
    return LogUnavailable(description)
