"""Fixtures that every room's tests share, and the order of the files."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.postgres_fixture", "tests.kafka_fixture", "tests.both_logs"]


LONG = {
    "test_erasure_after_a_disaster",
    "test_erasure_meanwhile",
    "test_faults",
    "test_killed_in_the_middle",
    "test_program_upgrade",
    "test_residue_of_a_history",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is on Kafka first, what needs no service last: so processes that share the files end together. What takes minutes is marked, and so are journeys on
    Kafka, which all run on the Postgres log too."""
    on_kafka = {item.path for item in items if item.get_closest_marker("kafka")}
    items.sort(key=lambda item: 0 if item.path in on_kafka else 2 if item.path.parts[-2] in ("unit", "golden") else 1)
    for item in items:
        if item.path.stem in LONG or (item.path.parts[-2] == "journey" and item.get_closest_marker("kafka")):
            item.add_marker(pytest.mark.long)
