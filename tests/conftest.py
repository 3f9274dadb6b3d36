"""Fixtures that all tests share, and the order of the files."""

from __future__ import annotations

import gc
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from sql.embedded import LOCATION_FILE, find_relocated_tables

# As the program does: the default thresholds cost a quarter of the time to collect the tests.
gc.set_threshold(50_000, 20, 100)

pytest_plugins = [
    "tests.support.postgres_fixture",
    "tests.support.kafka_fixture",
    "tests.support.log_backends",
    "tests.support.bolt_server",
]

BASE_PREFIX = "anabranch-tests-"
TESTS = Path(__file__).parent
LONGEST_FILES = (
    "journey/test_concurrent_erasure.py",
    "integration/test_benchmarks.py",
    "journey/test_erasure_recovery.py",
    "journey/test_generations.py",
    "journey/test_replays.py",
    "integration/test_postgres_source.py",
    "integration/test_kafka_worker.py",
    "journey/test_restored_database.py",
    "property/test_exactly_once_postgres.py",
    "journey/test_command_line.py",
    "journey/test_exam.py",
    "journey/test_erasure.py",
    "integration/test_worker_kills.py",
    "integration/test_stage_version_upgrade.py",
    "integration/test_debezium.py",
    "integration/test_kafka_pipeline.py",
    "integration/test_lexical_search.py",
    "integration/test_successive_generations.py",
    "journey/remote/test_answers.py",
    "journey/test_bad_input.py",
    "property/test_document_changes.py",
    "journey/test_credentials.py",
    "journey/test_redrives.py",
    "integration/test_reindex.py",
    "integration/test_incremental_indexing.py",
)
"""By their time in a run with two processes. A long file that begins last ends alone."""

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


def pytest_configure(config: pytest.Config) -> None:
    """Use temporary folders that no earlier run had.

    As root, Postgres keeps its tables outside the data folder, under a name made from its path. A
    killed run leaves them there, and `anabranch` refuses to start on them.
    """
    if not hasattr(config, "workerinput") and config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix=BASE_PREFIX)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Delete the temporary folders, and the tables outside them, unless a test failed."""
    folder = Path(session.config.option.basetemp)
    if (
        exitstatus == pytest.ExitCode.OK
        and not hasattr(session.config, "workerinput")
        and folder.name.startswith(BASE_PREFIX)
    ):
        for location in folder.rglob(LOCATION_FILE):
            if (tables := find_relocated_tables(location.parent)) is not None:
                shutil.rmtree(tables, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first and those without services last, so that processes which share
    the files end together.
    """
    on_kafka = {item.path for item in items if item.get_closest_marker("kafka")}

    def rank(item: pytest.Item) -> int:
        if (name := item.path.relative_to(TESTS).as_posix()) in LONGEST_FILES:
            return LONGEST_FILES.index(name)
        if item.path in on_kafka:
            return len(LONGEST_FILES)
        return len(LONGEST_FILES) + (2 if item.path.parts[-2] in ("unit", "golden") else 1)

    items.sort(key=rank)


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
