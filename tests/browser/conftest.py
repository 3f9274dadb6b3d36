"""One Chromium and one server with the sample documents for each test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.browser import open_chromium, require_chromium
from tests.support.server_process import open_http_client, run_anabranch, run_up

CORPUS = Path(__file__).parents[2] / "samples/corpus"


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


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A server with the sample documents, one question answered and one refused."""
    folder: Path = tmp_path_factory.mktemp("browser") / "data"
    with run_up(folder) as (_, server):
        done = run_anabranch("ingest", str(CORPUS), "--wait", "--data", str(folder))
        assert done.returncode == 0, done.stderr
        with open_http_client(server) as http:
            for question in (
                "How many days of notice must Merrin Ferries give before it changes the timetable?",
                "What is the melting point of tungsten?",
            ):
                assert http.post("/v1/query", json={"query": question}).status_code == 200
        yield server
