"""Check what other accounts and processes can read of a server, and what its token permits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx2

from tests.support.eventually import eventually_blocking
from tests.support.server_process import list_descendants, open_http_client, run_anabranch, run_up


def test_local_token_authenticates_cli_and_is_private_to_owner(folder: Path) -> None:
    with run_up(folder) as (process, server):
        token = server["token"]
        assert len(token) >= 43
        for written in (process.ready_file, folder / "server.json"):
            assert written.stat().st_mode & 0o777 == 0o600
            assert json.loads(written.read_text())["token"] == token
        assert token not in process.stdout_file.read_text() + process.stderr_file.read_text()
        assert not [line for line in read_command_lines() if token in line], (
            "the token is in the process list"
        )
        assert httpx2.get(f"{server['url']}/v1/documents").status_code == 401
        assert run_anabranch("documents", "list", "--data", str(folder)).returncode == 0
        remote = ("documents", "list", "--server", server["url"])
        refused = run_anabranch(*remote)
        assert (
            refused.returncode != 0
            and "UNAUTHENTICATED" in refused.stderr
            and "ANABRANCH_TOKEN" in refused.stderr
        )
        assert run_anabranch(*remote, ANABRANCH_TOKEN=token).returncode == 0
        with open_http_client(server) as http:
            kill_api_and_wait(process.process.pid, http)
            assert http.get("/v1/documents").status_code == 200, "a restarted API keeps the token"


def read_command_lines() -> list[str]:
    return [read_of_process(path) for path in Path("/proc").glob("[0-9]*/cmdline")]


def read_of_process(path: Path) -> str:
    """Return a file under /proc; empty if the process has ended since it was listed."""
    try:
        return path.read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kill_api_and_wait(supervisor: int, http: httpx2.Client) -> None:
    """Kill the API and wait until another process answers."""
    before = find_api_pid(supervisor)
    assert before
    os.kill(before, signal.SIGKILL)
    eventually_blocking(
        lambda: find_api_pid(supervisor) not in (None, before) and is_api_alive(http),
        what="an answer of the restarted API",
    )


def find_api_pid(supervisor: int) -> int | None:
    return next(
        (
            pid
            for pid in list_descendants(supervisor)
            if read_of_process(Path(f"/proc/{pid}/comm")).strip() == "anabranch-api"
        ),
        None,
    )


def is_api_alive(http: httpx2.Client) -> bool:
    try:
        return http.get("/livez").status_code == 200
    except httpx2.HTTPError:
        return False


def test_configured_token_is_used(folder: Path) -> None:
    chosen = "chosen-by-the-owner-of-this-server"
    with run_up(folder, ANABRANCH_API__TOKEN=chosen) as (_, server):
        assert server["token"] == chosen
        found: Any = run_anabranch("documents", "list", "--data", str(folder), "--json")
        assert found.returncode == 0, found.stderr
