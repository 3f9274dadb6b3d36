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

from sql.embedded.server import LOCATION_FILE, find_relocated_tables

# As the program does.
gc.set_threshold(50_000, 20, 100)

pytest_plugins = [
    "tests.support.postgres_fixture",
    "tests.support.kafka_fixture",
    "tests.support.log_backends",
    "tests.support.bolt_server",
]

BASE_PREFIX = "anabranch-tests-"
TESTS = Path(__file__).parent
TIMES_BY_KIND = {
    "faults": (60, 30),
    "browser": (60, 30),
    "journey": (60, 5),
    "integration": (20, 2),
    "property": (20, 1),
    "contract": (1, 0.2),
}
"""Seconds of a file of tests of this kind: its servers, and each test. Others take no server."""
KAFKA_FACTOR = 3
TIMES_BY_FILE = {
    "integration/test_benchmarks.py": 120,
    "unit/test_linear_time.py": 60,
    "unit/test_cli.py": 60,
    "unit/test_channel_howto.py": 20,
}
"""Seconds of files that take far longer than others of their kind."""

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
    """Run the files that probably take longest first: a long file that begins last ends alone."""
    times: dict[Path, float] = {}
    for item in items:
        name = item.path.relative_to(TESTS)
        start_s, test_s = TIMES_BY_KIND.get(name.parts[0], (0, 0.02))
        start_s = TIMES_BY_FILE.get(name.as_posix(), start_s)
        factor = KAFKA_FACTOR if item.get_closest_marker("kafka") else 1
        times[item.path] = times.get(item.path, start_s) + test_s * factor
    items.sort(key=lambda item: -times[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measured costs, which are recorded as the property `cost` of a test."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if isinstance(report, pytest.TestReport)
    ]
    for report in reports:
        for name, value in report.user_properties:
            if name == "cost":
                terminalreporter.write_line(f"cost: {value}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude the loaded modules and collected tests from this and each later garbage collection,
    a sixth of the time to collect the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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
