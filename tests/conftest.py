"""Fixtures that all tests share, and the order of the files."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# As the program does: the default thresholds cost a quarter of the time to collect the tests.
gc.set_threshold(50_000, 20, 100)

pytest_plugins = [
    "tests.support.postgres_fixture",
    "tests.support.kafka_fixture",
    "tests.support.log_backends",
]

# A busy machine takes longer for an example than hypothesis expects, which says nothing about ours.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--containers",
        action="store_true",
        help="Use Postgres and Kafka from images. Tests that need them are skipped without Docker.",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests on Kafka first and those without services last, so that processes which share the
    files end together.
    """
    on_kafka = {item.path for item in items if item.get_closest_marker("kafka")}
    items.sort(
        key=lambda item: (
            0 if item.path in on_kafka else 2 if item.path.parts[-2] in ("unit", "golden") else 1
        )
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measured ratios, which are recorded as the property `ratio` of a test."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if isinstance(report, pytest.TestReport)
    ]
    for report in reports:
        for name, value in report.user_properties:
            if name == "ratio":
                terminalreporter.write_line(f"ratio: {value}")


def pytest_collection_finish() -> None:
    """Exclude the loaded modules and collected tests from each later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def reset_logging() -> Iterator[None]:
    """Undo the logging that a command sets up in this process, for the tests after it."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        root = logging.getLogger()
        for handler in [one for one in root.handlers if type(one) is logging.StreamHandler]:
            root.removeHandler(handler)
        root.setLevel(logging.WARNING)
