"""Run `anabranch` as a user does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

START_TIMEOUT_S = 90


def make_environment(**settings: str) -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")
    } | settings


def open_http_client(server: dict[str, Any]) -> httpx2.Client:
    """Open a client with all permissions. `server` is the content of the ready file."""
    return httpx2.Client(
        base_url=server["url"], headers={"Authorization": f"Bearer {server['token']}"}, timeout=60
    )


def reset_stop_signals() -> None:
    """Reset the signals that a child inherits as ignored from a test run under nohup (SIGHUP) or in
    the background of a script (SIGINT).
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class UpProcess:
    """`anabranch up` with output in `up.out` and `up.err` beside its folder."""

    def __init__(self, folder: Path, *arguments: str, **settings: str) -> None:
        self.ready_file, self.stdout_file, self.stderr_file = (
            folder.parent / name for name in ("ready.json", "up.out", "up.err")
        )
        self.ready_file.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "anabranch",
            "up",
            "--data",
            str(folder),
            "--port",
            "0",
            "--ready-file",
            str(self.ready_file),
            *arguments,
        ]
        with self.stdout_file.open("wb") as out, self.stderr_file.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                env=make_environment(**settings),
                stdout=out,
                stderr=err,
                preexec_fn=reset_stop_signals,
            )

    def wait_ready(self) -> dict[str, Any]:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.ready_file.exists():
            assert self.process.poll() is None, (
                f"it ended with {self.process.returncode}: {self.stderr_file.read_text()[-2000:]}"
            )
            assert time.monotonic() < deadline, "it is not ready in time"
            time.sleep(0.1)
        return dict(json.loads(self.ready_file.read_text()))

    def stop(self, wish: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(wish)
        return self.process.wait(30)


@contextmanager
def run_up(
    folder: Path, *arguments: str, **settings: str
) -> Iterator[tuple[UpProcess, dict[str, Any]]]:
    found = UpProcess(folder, *arguments, **settings)
    try:
        yield found, found.wait_ready()
    finally:
        if found.process.poll() is None:
            found.stop(signal.SIGTERM)


def run_anabranch(
    *arguments: str, stdin: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal at its stdin."""
    command = [sys.executable, "-m", "anabranch", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        input=stdin,
        env=make_environment(**settings),
        check=False,
        timeout=120,
    )


def run_program(
    program: Path, *arguments: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the installed program in a working folder."""
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


NOTE = "# Lock\n\nThe keeper of the lock at Ardmore raises the sluice at five past six.\n"


def run_json(*arguments: str, expected: int = 0, **settings: str) -> dict[str, Any]:
    done = run_anabranch(*arguments, "--json", **settings)
    assert done.returncode == expected, done.stderr
    return dict(json.loads(done.stdout))


def search_snippets(server: dict[str, Any], words: str) -> list[str]:
    with open_http_client(server) as http:
        response = http.post("/v1/search", json={"query": words})
    return [result["snippet"] for result in response.json()["results"]]


def list_descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [one for child in map(int, children) for one in (child, *list_descendants(child))]
