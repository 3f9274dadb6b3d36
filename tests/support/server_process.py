"""Run `anabranch` as a user does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.forked_process import ForkedProcess, fork_command

START_TIMEOUT_S = STOP_TIMEOUT_S = 180
COMMAND_TIMEOUT_S = 240
"""Below the limit of a test. A server starts in 3 s, and in 40 s on a machine with eight times as
many processes as cores.
"""

StartedProcess = subprocess.Popen[bytes] | ForkedProcess


def make_environment(**settings: str) -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")
    } | settings


def open_http_client(server: dict[str, Any]) -> httpx2.Client:
    """Open a client with all permissions. `server` is the content of the ready file."""
    return httpx2.Client(
        base_url=server["url"],
        headers={"Authorization": f"Bearer {server['token']}"},
        timeout=60,
        verify=server["url"].startswith("https:"),
    )


def reset_stop_signals() -> None:
    """Reset the signals that a child inherits as ignored from a test run under nohup (SIGHUP) or in
    the background of a script (SIGINT).
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class UpProcess:
    """`anabranch up` with output in `up.out` and `up.err` beside its folder.

    A forked one has the command line and the environment of its parent in `ps`, and ignores
    `PYTHONPATH`.
    """

    process: StartedProcess

    def __init__(
        self, folder: Path, *arguments: str, is_forked: bool = False, **settings: str
    ) -> None:
        self.ready_file, self.stdout_file, self.stderr_file = (
            folder.parent / name for name in ("ready.json", "up.out", "up.err")
        )
        self.ready_file.unlink(missing_ok=True)
        command = ["up", "--data", str(folder), "--port", "0", "--ready-file"]
        command += [str(self.ready_file), *arguments]
        environment = make_environment(**settings)
        if is_forked:
            streams = (Path(os.devnull), self.stdout_file, self.stderr_file)
            self.process = fork_command(command, streams, environment)
            return
        with self.stdout_file.open("wb") as out, self.stderr_file.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "anabranch", *command],
                env=environment,
                stdout=out,
                stderr=err,
                preexec_fn=reset_stop_signals,
            )

    def wait_ready(self) -> dict[str, Any]:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.ready_file.exists():
            assert self.process.poll() is None, (
                f"it ended with {self.process.poll()}: {self.stderr_file.read_text()[-2000:]}"
            )
            assert time.monotonic() < deadline, "it is not ready in time"
            time.sleep(0.1)
        return dict(json.loads(self.ready_file.read_text()))

    def stop(self, wish: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(wish)
        return self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def run_up(
    folder: Path, *arguments: str, **settings: str
) -> Iterator[tuple[UpProcess, dict[str, Any]]]:
    is_forked = "PYTHONPATH" not in settings
    found = UpProcess(folder, *arguments, is_forked=is_forked, **settings)
    try:
        yield found, found.wait_ready()
    finally:
        if found.process.poll() is None:
            found.stop(signal.SIGTERM)


def run_anabranch(
    *arguments: str, stdin: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal at its stdin."""
    with tempfile.TemporaryDirectory(prefix="anabranch-command-") as folder:
        stdin_file, stdout_file, stderr_file = streams = (
            Path(folder, "stdin"),
            Path(folder, "stdout"),
            Path(folder, "stderr"),
        )
        stdin_file.write_text(stdin)
        process = fork_command(arguments, streams, make_environment(**settings))
        try:
            code = process.wait(COMMAND_TIMEOUT_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            [*arguments], code, stdout_file.read_text(), stderr_file.read_text()
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
        timeout=COMMAND_TIMEOUT_S,
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
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return []
    return [one for child in map(int, children) for one in (child, *list_descendants(child))]
