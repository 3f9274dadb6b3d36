"""Whatever ends `anabranch`, nothing that it started is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from anabranch.process.database import POSTGRES_FOLDER
from sql.embedded import LOCATION_FILE
from tests.journey.server_process import START_TIMEOUT_S, UpProcess, make_environment, reset_hangup_handler, run_anabranch

STOP_TIMEOUT_S = 30.0
MARKER_VARIABLE = "STARTED_BY_TEST"
"""In the environment of everything that a test started; Postgres overwrites its own, and is found by its data folder."""


def list_processes(folder: Path) -> list[str]:
    elsewhere = folder / POSTGRES_FOLDER / LOCATION_FILE
    data = elsewhere.read_text().splitlines()[0] if elsewhere.exists() else str(folder / POSTGRES_FOLDER)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if f"{MARKER_VARIABLE}={folder}\0".encode() in variables or f"{data}/data".encode() in command:
            found.append(command.replace(b"\0", b" ").decode())
    return [command for command in found if command]


def is_postgres_running(folder: Path) -> bool:
    return any("bin/postgres" in command for command in list_processes(folder))


def wait_until(holds: Callable[[], bool], within_s: float = STOP_TIMEOUT_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_all_stop(folder: Path) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while left := list_processes(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGINT, signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGHUP)],
    ids=lambda signals: "+".join(number.name for number in signals),
)
def test_no_process_survives_stopped_up(folder: Path, signals: Sequence[signal.Signals]) -> None:
    server = UpProcess(folder, **{MARKER_VARIABLE: str(folder)})
    server.wait_ready()
    assert is_postgres_running(folder)
    for number in signals:
        if server.process.poll() is None:
            server.process.send_signal(number)
            time.sleep(0.2)
    server.process.wait(STOP_TIMEOUT_S)
    assert_all_stop(folder)
    assert "Traceback" not in server.stderr_file.read_text()


def test_killed_up_stops_only_its_own_processes(folder: Path) -> None:
    first, second = UpProcess(folder, **{MARKER_VARIABLE: str(folder)}), None
    first.wait_ready()
    try:
        first.process.kill()
        first.process.wait()
        second = UpProcess(folder, **{MARKER_VARIABLE: str(folder)})
        second.wait_ready()
        time.sleep(1)
        assert is_postgres_running(folder), "the first one's guardian left it to the second"
    finally:
        if second is not None:
            second.process.kill()
            second.process.wait()
    assert_all_stop(folder)


def test_interrupted_start_leaves_no_process(folder: Path) -> None:
    for started in (lambda: bool(list_processes(folder)), lambda: is_postgres_running(folder)):
        server = UpProcess(folder, **{MARKER_VARIABLE: str(folder)})
        wait_until(started, START_TIMEOUT_S)
        for _ in range(2):
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        server.process.wait(STOP_TIMEOUT_S)
        assert_all_stop(folder)


def test_closed_terminal_stops_up(folder: Path) -> None:
    ours, theirs = os.openpty()
    ready = folder.parent / "ready.json"
    command = [sys.executable, "-m", "anabranch", "up", "--data", str(folder), "--port", "0", "--ready-file", str(ready)]
    # The new session takes the terminal as its own, as a terminal window's shell does.
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=make_environment(**{MARKER_VARIABLE: str(folder)}),
        preexec_fn=reset_hangup_handler,
    )
    os.close(theirs)
    wait_until(ready.exists, START_TIMEOUT_S)
    os.close(ours)
    process.wait(STOP_TIMEOUT_S)
    assert_all_stop(folder)


def test_interrupted_command_stops_its_server(folder: Path) -> None:
    assert run_anabranch("db", "migrate", "--data", str(folder)).returncode == 0
    command = [sys.executable, "-m", "anabranch", "documents", "list", "--data", str(folder)]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        process = subprocess.Popen(
            command,
            env=make_environment(**{MARKER_VARIABLE: str(folder)}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=reset_hangup_handler,
        )
        wait_until(lambda: is_postgres_running(folder), START_TIMEOUT_S)
        process.send_signal(number)
        process.wait(STOP_TIMEOUT_S)
        assert_all_stop(folder)
