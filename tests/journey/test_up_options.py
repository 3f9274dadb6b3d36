"""`anabranch up --open`, `--sample` and `--ui-dev`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch.cli.up import SAMPLE_FOLDERS
from anabranch.process.data_folder import ServerInfo
from anabranch.process.ui_dev_server import check_ui_sources, run_ui_dev_server
from schemas.errors import ConfigurationError, FatalError
from tests.support.eventually import eventually_blocking
from tests.support.server_process import open_http_client, run_up

SERVER = ServerInfo("http://127.0.0.1:1", "token", None, "embedded", "postgres", 1, "/data", True)
# Answers in place of npm; its child is what has to be stopped too.
DEV_SERVER = """#!{python}
import http.server, os, subprocess, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
child = subprocess.Popen(["sleep", "600"])
open("child", "w").write(str(child.pid))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["ANABRANCH_UI_API"].encode())
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_sample_documents_are_ingested_once_and_a_browser_is_opened(
    folder: Path, tmp_path: Path
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    n_samples = len(list(SAMPLE_FOLDERS[-1].iterdir()))
    with run_up(folder, "--sample", "--open", BROWSER=str(browser)) as (process, server):
        opened = eventually_blocking(
            lambda: (
                (tmp_path / "opened").read_text().strip() if (tmp_path / "opened").exists() else ""
            ),
            bool,
        )
        assert f"UI        {opened} " in process.stdout_file.read_text()
        with httpx2.Client(follow_redirects=True) as browser_client:
            page = browser_client.get(opened)
            assert (page.status_code, page.url.path) == (200, "/ui/")
            assert browser_client.get(f"{server['url']}/v1/whoami").json()["role"] == "operator"
        wait_for_samples(server, process.stderr_file, f"{n_samples} searchable")
        assert process.stop() == 130
    with run_up(folder, "--sample") as (process, server):
        wait_for_samples(server, process.stderr_file, f"{n_samples} duplicate")
        with open_http_client(server) as http:
            documents = http.get("/v1/documents", params={"limit": 50}).json()["items"]
        assert len(documents) == n_samples
        assert all(document["tags"] == ["sample"] for document in documents)


def wait_for_samples(server: dict[str, Any], log: Path, summary: str) -> None:
    eventually_blocking(log.read_text, lambda text: f"sample documents: {summary}" in text)


def test_ui_dev_needs_a_checkout_with_its_tools(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs the sources") as caught:
        check_ui_sources(tmp_path)
    assert "make install" in caught.value.remedy
    make_checkout(tmp_path, None)
    with pytest.raises(ConfigurationError, match="does not exist"):
        check_ui_sources(tmp_path)


async def test_ui_dev_server_stops_with_its_children(tmp_path: Path) -> None:
    make_checkout(tmp_path, DEV_SERVER.format(python=sys.executable))
    check_ui_sources(tmp_path)
    async with run_ui_dev_server(SERVER, tmp_path) as address:
        async with httpx2.AsyncClient() as http:
            assert (await http.get(address)).text == SERVER.url
        child = int((tmp_path / "child").read_text())
        assert is_running(child)
    async with asyncio.timeout(60):
        while is_running(child):
            await asyncio.sleep(0.05)


async def test_ui_dev_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    make_checkout(tmp_path, "#!/bin/sh\nexit 1\n")
    with pytest.raises(FatalError, match="did not start"):
        async with run_ui_dev_server(SERVER, tmp_path):
            pass


def make_checkout(root: Path, program: str | None) -> None:
    (root / "web").mkdir(exist_ok=True)
    (root / "web" / "package.json").write_text("{}")
    if program is not None:
        python = root / "build" / "uv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(program)
        python.chmod(0o755)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    # A zombie has ended, and waits for the init process of this container.
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
