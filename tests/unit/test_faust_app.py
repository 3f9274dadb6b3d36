"""Settings that are passed to Faust, and its own defaults that they override."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams.kafka.assignment import PartitionAssignment
from streams.kafka.client_settings import KafkaClientSettings
from streams.kafka.faust_app import FaustApp
from streams.kafka.subscriber import FaustSubscriber
from tests.support.log_cases import CollectingSink


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
