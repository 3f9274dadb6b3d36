"""Programs of users against `anabranch up`: the examples of the pages, and the clients of the
protocols. The TypeScript client needs `make mcp-client` (npm), and is skipped without.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.support.agents import call_tool, fail_tool
from tests.support.eventually import eventually_blocking
from tests.support.server_process import make_environment, open_http_client, run_anabranch, run_up

ROOT = Path(__file__).parents[2]
NODE_MODULES = ROOT / "build/mcp-client/node_modules"
PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
CLIENTS = ("claude", "cursor", "vscode")
QUESTION = "How many days of notice must Merrin Ferries give?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with run_up(tmp_path_factory.mktemp("clients") / "data") as (_, found):
        with open_http_client(found) as http:
            text = "Merrin Ferries must give ninety days of notice."
            http.post("/v1/ingest", json={"text": text, "title": "Charter"}).raise_for_status()
            eventually_blocking(lambda: list_states(http), lambda states: states == ["searchable"])
        yield found


def list_states(http: httpx2.Client) -> list[str]:
    return [document["state"] for document in http.get("/v1/documents").json()["items"]]


def read_entry(client: str, *arguments: str, **settings: str) -> dict[str, Any]:
    """Return the entry that `mcp config` prints for the server."""
    printed = run_anabranch("mcp", "config", client, *arguments, **settings)
    assert printed.returncode == 0, printed.stderr
    (servers,) = json.loads(printed.stdout).values()
    return dict(servers["anabranch"])


@pytest.mark.parametrize("page", ["connect-an-agent", "connect-a-chat-client"])
def test_python_examples_of_the_page_run(server: dict[str, Any], page: str) -> None:
    environment = make_environment(SERVER=server["url"], TOKEN=server["token"])
    examples = PYTHON_BLOCK.findall((ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8"))
    assert examples
    for example in examples:
        done = subprocess.run(
            [sys.executable, "-c", example],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert "ninety days" in done.stdout.replace("**", ""), done.stdout


async def test_printed_entry_starts_an_agent_server(server: dict[str, Any]) -> None:
    entries = [read_entry(client, "--data", server["data_dir"]) for client in CLIENTS]
    assert entries[2] == {"type": "stdio", **entries[0]} and entries[1] == entries[0]
    assert server["token"] not in json.dumps(entries)
    started = StdioServerParameters(command=entries[0]["command"], args=entries[0]["args"])
    async with Client(started) as agent:
        answer = await call_tool(agent, "answer", query=QUESTION)
        assert "ninety days" in answer["citations"][0]["quote"]
        assert "[NOT_FOUND]" in await fail_tool(agent, "explain", run_id="0" * 32)


async def test_agent_server_reports_a_refused_credential(server: dict[str, Any]) -> None:
    entry = read_entry("claude", "--server", server["url"])
    assert entry["args"][-2:] == ["--server", server["url"]]
    environment = {"ANABRANCH_TOKEN": "not the token of this server"}
    started = StdioServerParameters(command=entry["command"], args=entry["args"], env=environment)
    async with Client(started) as agent:
        assert "[UNAUTHENTICATED]" in await fail_tool(agent, "search", query=QUESTION)


@pytest.mark.skipif(not NODE_MODULES.exists(), reason="needs `make mcp-client` (npm)")
def test_typescript_client_works_over_http_and_stdio(server: dict[str, Any]) -> None:
    entry = read_entry("vscode", "--data", server["data_dir"])
    done = subprocess.run(
        [
            *("node", "check.mjs", server["url"], server["token"], QUESTION),
            *(entry["command"], *entry["args"]),
        ],
        cwd=NODE_MODULES.parent,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "ok\n", f"{done.stdout}{done.stderr}"
