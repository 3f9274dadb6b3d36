from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from streams.kafka.retention import POLICY, RETENTION, SIZE, keeps_at_least

SETTINGS = {POLICY: "delete", RETENTION: "3600000", SIZE: "-1"}


class Cluster:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def describe_configs(self, resources: list[ConfigResource], **_: Any) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        told: Future[dict[str, ConfigEntry]] = Future()
        told.set_result({name: ConfigEntry(name, value) for name, value in self.settings.items()})
        return {resources[0]: told}


@pytest.mark.parametrize(
    ("otherwise", "kept"),
    [
        ({}, timedelta(hours=1)),
        ({RETENTION: "-1"}, None),
        ({SIZE: "1000000"}, None),
        ({POLICY: "compact"}, None),
        ({POLICY: "compact,delete"}, None),
    ],
)
async def test_a_topic_promises_a_time_only_where_nothing_but_time_makes_it_forget(otherwise: dict[str, str], kept: timedelta | None) -> None:
    assert await keeps_at_least(cast(AdminClient, Cluster({**SETTINGS, **otherwise})), "raw") == kept
