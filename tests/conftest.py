"""Fixtures that every room's tests share, and the order of the files."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import structlog

pytest_plugins = [
    "tests.support.postgres_fixture",
    "tests.support.kafka_fixture",
    "tests.support.log_backends",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--containers",
        action="store_true",
        help="Use Postgres and Kafka from images. Tests that need them are skipped without Docker.",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is on Kafka first, what needs no service last: so processes that share the files end
    together.
    """
    on_kafka = {item.path for item in items if item.get_closest_marker("kafka")}
    items.sort(
        key=lambda item: (
            0 if item.path in on_kafka else 2 if item.path.parts[-2] in ("unit", "golden") else 1
        )
    )


def pytest_collection_finish() -> None:
    """All modules are loaded and all tests are known: not to be looked through again by each
    collection of garbage.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def reset_logging() -> Iterator[None]:
    """A command that a test runs in its own process sets up logs for all that come after it."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        root = logging.getLogger()
        for handler in [one for one in root.handlers if type(one) is logging.StreamHandler]:
            root.removeHandler(handler)
        root.setLevel(logging.WARNING)
