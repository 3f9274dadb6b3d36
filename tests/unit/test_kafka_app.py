"""What Faust is told, and what it would otherwise take from elsewhere."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams.kafka.app import StageApp
from streams.kafka.assignment import Assignment
from streams.kafka.settings import KafkaSettings
from streams.kafka.worker import FaustSubscriber
from tests.contract.logs import Collector


def app() -> StageApp:
    assignment = Assignment("t", lambda partition: Collector(partition, acknowledging=True, room=None))
    return StageApp("g", "t", assignment, FaustSubscriber(KafkaSettings("here:9")).consumer_arguments("g"))


async def test_the_environment_of_other_programs_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"APP_VERSION": "1.2.3", "BROKER_URL": "redis://elsewhere", "TIMEZONE": "Mars/Crater", "BROKER_COMMIT_INTERVAL": "never"}.items():
        monkeypatch.setenv(name, value)
    settings = app().conf
    assert (settings.id, [str(url) for url in settings.broker], settings.broker_commit_interval) == ("g", ["aiokafka://here:9"], 1.0)


async def test_a_seek_is_waited_for_however_long_a_broker_is_away() -> None:
    assert app().conf.broker_request_timeout > timedelta(days=365).total_seconds(), "Faust's recovery ends for good where it is not done in time"
