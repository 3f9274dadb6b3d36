"""Topics and consumer groups of a cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from schemas.errors import AnabranchError, ConfigurationError, LogUnavailable
from streams.kafka.acls import Grant, describe_grants
from streams.kafka.quiet import librdkafka
from streams.kafka.retention import kept_for
from streams.kafka.settings import KafkaSettings
from streams.kafka.timestamps import check_clocks

T = TypeVar("T")
_log = logging.getLogger(__name__)
_TIMEOUT_S = 10.0
_TRY_S = 1.0
_LEADERLESS_TRIES = 30
_DENIED = (KafkaError._AUTHENTICATION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Administration:
    """One client for as long as it is used: librdkafka fails what is under way when its client is collected."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._client: AdminClient | None = None
        self._denied: KafkaError | None = None

    async def create_topics(self, partitions: Mapping[str, int], retention_ms: Mapping[str, int]) -> None:
        """As `EventLog.create_topics`. Somebody else may create the same ones meanwhile."""
        missing = partitions.keys() - (await self._compared(partitions))
        if missing:
            new = [self._new_topic(topic, partitions[topic], retention_ms.get(topic, -1)) for topic in sorted(missing)]
            await self._created(new)
            await self._visible(partitions)
        await self._check_clocks(partitions)

    async def delete_topics(self, topics: Collection[str]) -> None:
        """As `EventLog.delete_topics`; returns when the cluster shows them no more."""
        names = [self._settings.topic_prefix + topic for topic in topics]
        there = sorted(set(names) & (await self._existing()).keys())
        if there:
            await self._deleted(there)

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """As `EventLog.ends`; records of a foreign transaction that is still open count as not yet there."""
        name = self._settings.topic_prefix + topic
        places = [TopicPartition(name, partition) for partition in range(await self.partition_count(topic))]
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        first, after_last = await self._offsets(places, earliest), await self._offsets(places, latest)
        return {partition: (first[partition], after_last[partition]) for partition in first}

    async def wait_until_reachable(self, timeout_s: float) -> None:
        """Raises LogUnavailable where no broker answers in time. What is awaited is logged once."""
        loop = asyncio.get_running_loop()
        deadline, logged = loop.time() + timeout_s, False
        while True:
            try:
                await self._call(lambda client: client.list_topics(timeout=_TRY_S))
                return
            except LogUnavailable as error:
                if loop.time() > deadline:
                    raise LogUnavailable(
                        f"Kafka at {self._settings.bootstrap_servers} did not answer within {timeout_s:g} s.",
                        code="KAFKA_UNREACHABLE",
                        remedy="Start Kafka, or correct ANABRANCH_KAFKA__BOOTSTRAP_SERVERS. ANABRANCH_KAFKA__START_TIMEOUT_S sets how long to wait.",
                    ) from error
            if not logged:
                _log.warning("waiting for Kafka at %s for at most %g s", self._settings.bootstrap_servers, timeout_s)
                logged = True
            await asyncio.sleep(_TRY_S / 5)

    async def topics(self) -> list[str]:
        """That are there."""
        prefix = self._settings.topic_prefix
        return sorted(name.removeprefix(prefix) for name in await self._existing() if name.startswith(prefix))

    async def partition_count(self, topic: str) -> int:
        """Raises ConfigurationError where a broker says that there is no such topic, LogUnavailable where none answers."""
        name = self._settings.topic_prefix + topic
        metadata = await self._call(lambda client: client.list_topics(name, timeout=_TIMEOUT_S))
        found = metadata.topics[name]
        if found.error is not None:
            raise translated(KafkaException(found.error), f"looking for topic {name}")
        return len(found.partitions)

    async def _compared(self, partitions: Mapping[str, int]) -> set[str]:
        """Those that exist. Raises ConfigurationError where one has another partition count."""
        existing = await self._existing()
        for topic, count in partitions.items():
            found = existing.get(self._settings.topic_prefix + topic)
            if found is not None and found != count:
                raise ConfigurationError(
                    f"Topic {self._settings.topic_prefix}{topic} has {found} partitions, not {count}.",
                    code="PARTITIONS_MISMATCH",
                    remedy="Set ANABRANCH_KAFKA__PARTITIONS to what the topics have, or use another ANABRANCH_KAFKA__TOPIC_PREFIX.",
                )
        return {topic for topic in partitions if self._settings.topic_prefix + topic in existing}

    async def looked(self, look: Callable[[AdminClient, str], Awaitable[T]], topic: str) -> T:
        """What one of `streams.kafka.retention` tells of a topic."""
        client = await self._call(lambda client: client)
        try:
            return await look(client, self._settings.topic_prefix + topic)
        except KafkaException as error:
            raise translated(error, f"looking at the settings of topic {topic}") from error

    async def grants(self) -> list[Grant] | None:
        """Access rules of the cluster; None where it has no authorizer. Raises ConfigurationError with code KAFKA_DENIED where it does not let us look."""
        client = await self._call(lambda client: client)
        try:
            return await describe_grants(client)
        except KafkaException as error:
            raise translated(error, "looking at the access rules") from error

    async def _check_clocks(self, partitions: Mapping[str, int]) -> None:
        client = await self._call(lambda client: client)
        try:
            await check_clocks(client, self._settings.bootstrap_servers, [self._settings.topic_prefix + topic for topic in partitions])
        except KafkaException as error:
            raise translated(error, "looking at the settings of topics") from error

    async def _existing(self) -> dict[str, int]:
        metadata = await self._call(lambda client: client.list_topics(timeout=_TIMEOUT_S))
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def _new_topic(self, topic: str, partitions: int, retention_ms: int) -> NewTopic:
        config = {"message.timestamp.type": "LogAppendTime"} | kept_for(retention_ms)
        return NewTopic(self._settings.topic_prefix + topic, num_partitions=partitions, replication_factor=-1, config=config)

    async def _created(self, topics: list[NewTopic]) -> None:
        futures = await self._call(lambda client: client.create_topics(topics, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S))
        for name, future in futures.items():
            try:
                await asyncio.wrap_future(future)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translated(error, f"creating topic {name}") from error

    async def _deleted(self, names: list[str]) -> None:
        futures = await self._call(lambda client: client.delete_topics(names, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S))
        for name, future in futures.items():
            try:
                await asyncio.wrap_future(future)
            except KafkaException as error:
                if error.args[0].code() not in _UNKNOWN:
                    raise translated(error, f"deleting topic {name}") from error
        for _ in range(100):
            if not set(names) & (await self._existing()).keys():
                return
            await asyncio.sleep(0.1)

    async def _visible(self, partitions: Mapping[str, int]) -> None:
        for _ in range(100):
            if await self._compared(partitions) == set(partitions):
                return
            await asyncio.sleep(0.1)
        raise LogUnavailable(f"Topics were created, but Kafka does not show them yet: {', '.join(sorted(partitions))}.")

    async def _offsets(self, places: Iterable[TopicPartition], spec: OffsetSpec) -> dict[int, int]:
        """Tries again for a while: the leaders of a topic that was just created, or of a broker that just went, are not yet known everywhere."""
        for _ in range(_LEADERLESS_TRIES):
            try:
                return await self._offsets_once(places, spec)
            except LogUnavailable as error:
                _log.debug("asking again: %s", error.detail)
                await asyncio.sleep(0.1)
        return await self._offsets_once(places, spec)

    async def _offsets_once(self, places: Iterable[TopicPartition], spec: OffsetSpec) -> dict[int, int]:
        asked = dict.fromkeys(places, spec)
        futures = await self._call(lambda client: client.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S))
        answers = await _answers(futures, "reading the ends of a topic")
        return {place.partition: answer.offset for place, answer in zip(futures, answers, strict=True)}

    async def _call(self, ask: Callable[[AdminClient], Any]) -> Any:
        if self._client is None:
            configuration: dict[str, Any] = {**self._settings.for_librdkafka(), "client.id": "anabranch-administration", "error_cb": self._note}
            self._client = AdminClient(configuration, logger=librdkafka)
        self._denied = None
        try:
            return await asyncio.to_thread(ask, self._client)
        except KafkaException as error:
            self._client.poll(0)
            raise translated(KafkaException(self._denied) if self._denied else error, "asking Kafka") from error

    def _note(self, error: KafkaError) -> None:
        """A refused password ends a call as a broker that does not answer; it is told here only, when the client is polled."""
        if error.code() in _DENIED:
            self._denied = error

    def close(self) -> None:
        self._client = None


def translated(error: KafkaException, doing: str) -> AnabranchError:
    """Our error for what librdkafka reports. Anything that Kafka may get over by itself is LogUnavailable."""
    cause = error.args[0]
    what = f"{doing}: {cause.str()}"
    if cause.code() in _DENIED:
        return ConfigurationError(what, code="KAFKA_DENIED", remedy="Check the credentials in ANABRANCH_KAFKA__SASL_* and the cluster's access rules.")
    if cause.code() in _UNKNOWN:
        return ConfigurationError(what, code="NO_TOPIC", remedy="Create the topics with `anabranch topics create`, or check ANABRANCH_KAFKA__TOPIC_PREFIX.")
    return LogUnavailable(what)


async def _answers(futures: Mapping[Any, Future[Any]], doing: str) -> list[Any]:
    try:
        return await asyncio.gather(*map(asyncio.wrap_future, futures.values()))
    except KafkaException as error:
        raise translated(error, doing) from error
