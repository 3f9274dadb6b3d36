"""Fixtures that every room's tests share."""

from __future__ import annotations

pytest_plugins = ["tests.postgres_fixture", "tests.kafka_fixture", "tests.both_logs"]
