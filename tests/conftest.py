"""Fixtures that every room's tests share, and the order of the files."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.postgres_fixture", "tests.kafka_fixture", "tests.both_logs"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is on Kafka first, what needs no service last: so processes that share the files end together."""
    on_kafka = {item.path for item in items if item.get_closest_marker("kafka")}
    items.sort(key=lambda item: 0 if item.path in on_kafka else 2 if item.path.parts[-2] in ("unit", "golden") else 1)
