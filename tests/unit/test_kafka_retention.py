from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from streams.kafka.topic_config import (
    CLEANUP_POLICY_SETTING,
    RETENTION_SETTING,
    SIZE_SETTING,
    fetch_min_retention,
)

TOPIC_CONFIG = {CLEANUP_POLICY_SETTING: "delete", RETENTION_SETTING: "3600000", SIZE_SETTING: "-1"}


class FakeAdminClient:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def describe_configs(
        self, resources: list[ConfigResource], **_: Any
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        entries: Future[dict[str, ConfigEntry]] = Future()
        entries.set_result(
            {name: ConfigEntry(name, value) for name, value in self.settings.items()}
        )
        return {resources[0]: entries}


@pytest.mark.parametrize(
    ("otherwise", "expected"),
    [
        ({}, timedelta(hours=1)),
        ({RETENTION_SETTING: "-1"}, None),
        ({SIZE_SETTING: "1000000"}, None),
        ({CLEANUP_POLICY_SETTING: "compact"}, None),
        ({CLEANUP_POLICY_SETTING: "compact,delete"}, None),
    ],
)
async def test_minimum_retention_is_known_only_with_time_based_deletion(
    otherwise: dict[str, str], expected: timedelta | None
) -> None:
    assert (
        await fetch_min_retention(
            cast(AdminClient, FakeAdminClient({**TOPIC_CONFIG, **otherwise})), "raw"
        )
        == expected
    )
