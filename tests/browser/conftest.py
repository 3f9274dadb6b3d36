"""One server with sample documents for all test processes, and a Chromium for each file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.browser import open_chromium, require_chromium
from tests.support.server_process import open_http_client, run_anabranch, run_up
from tests.support.shared_service import find_run_folder, share_service

CORPUS = Path(__file__).parents[2] / "samples/corpus"
SCANS = ("contrato-ponte-sao-telmo.pdf", "notice-to-mariners.png")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Chromium draws with the processor, beside three other test processes on two cores.
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def chromium() -> None:
    require_chromium()


# Of a module: while it is open its event loop counts as running, which no asyncio test stands.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_chromium() as browser:
        yield browser


@contextmanager
def _run_server(folder: Path) -> Iterator[dict[str, Any]]:
    with run_up(folder) as (_, server):
        files = [str(path) for path in CORPUS.iterdir() if path.name not in SCANS]
        done = run_anabranch("ingest", *files, "--wait", "--data", str(folder))
        assert done.returncode == 0, done.stderr
        with open_http_client(server) as http:
            for question in (
                "How many days of notice must Merrin Ferries give before it changes the timetable?",
                "What is the melting point of tungsten?",
            ):
                assert http.post("/v1/query", json={"query": question}).status_code == 200
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A server that tests only read or add to, with the sample documents that need no OCR, one
    question answered and one refused; shared with the other test processes.
    """
    folder = tmp_path_factory.mktemp("browser") / "data"
    with share_service(
        find_run_folder(tmp_path_factory), "browser", lambda: _run_server(folder)
    ) as server:
        yield server
