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

from anabranch.process.database import FOLDER
from sql.embedded import LOCATION
from tests.journey.served import START_S, Up, anabranch, environment, heed_hangup

STOP_S = 30.0
MARK = "STARTED_BY_TEST"
"""In the environment of everything that a test started; Postgres overwrites its own, and is found by its data folder."""


def processes_of(folder: Path) -> list[str]:
    elsewhere = folder / FOLDER / LOCATION
    data = elsewhere.read_text().splitlines()[0] if elsewhere.exists() else str(folder / FOLDER)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if f"{MARK}={folder}\0".encode() in variables or f"{data}/data".encode() in command:
            found.append(command.replace(b"\0", b" ").decode())
    return [command for command in found if command]


def runs_postgres(folder: Path) -> bool:
    return any("bin/postgres" in command for command in processes_of(folder))


def wait_until(holds: Callable[[], bool], within_s: float = STOP_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_all_stop(folder: Path) -> None:
    deadline = time.monotonic() + STOP_S
    while left := processes_of(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGINT, signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGHUP)],
    ids=lambda signals: "+".join(number.name for number in signals),
)
def test_no_process_survives_up_whatever_stops_it(folder: Path, signals: Sequence[signal.Signals]) -> None:
    server = Up(folder, **{MARK: str(folder)})
    server.wait_ready()
    assert runs_postgres(folder)
    for number in signals:
        if server.process.poll() is None:
            server.process.send_signal(number)
            time.sleep(0.2)
    server.process.wait(STOP_S)
    assert_all_stop(folder)
    assert "Traceback" not in server.err.read_text()


def test_killed_up_takes_its_processes_but_not_its_successors(folder: Path) -> None:
    first, second = Up(folder, **{MARK: str(folder)}), None
    first.wait_ready()
    try:
        first.process.kill()
        first.process.wait()
        second = Up(folder, **{MARK: str(folder)})
        second.wait_ready()
        time.sleep(1)
        assert runs_postgres(folder), "the first one's guardian left it to the second"
    finally:
        if second is not None:
            second.process.kill()
            second.process.wait()
    assert_all_stop(folder)


def test_interrupted_start_leaves_no_process(folder: Path) -> None:
    for started in (lambda: bool(processes_of(folder)), lambda: runs_postgres(folder)):
        server = Up(folder, **{MARK: str(folder)})
        wait_until(started, START_S)
        for _ in range(2):
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        server.process.wait(STOP_S)
        assert_all_stop(folder)


def test_closed_terminal_stops_up(folder: Path) -> None:
    ours, theirs = os.openpty()
    ready = folder.parent / "ready.json"
    command = [sys.executable, "-m", "anabranch", "up", "--data", str(folder), "--port", "0", "--ready-file", str(ready)]
    # The new session takes the terminal as its own, as a terminal window's shell does.
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**{MARK: str(folder)}), preexec_fn=heed_hangup
    )
    os.close(theirs)
    wait_until(ready.exists, START_S)
    os.close(ours)
    process.wait(STOP_S)
    assert_all_stop(folder)


def test_interrupted_command_stops_the_server_it_started(folder: Path) -> None:
    assert anabranch("db", "migrate", "--data", str(folder)).returncode == 0
    command = [sys.executable, "-m", "anabranch", "documents", "list", "--data", str(folder)]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        process = subprocess.Popen(
            command, env=environment(**{MARK: str(folder)}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=heed_hangup
        )
        wait_until(lambda: runs_postgres(folder), START_S)
        process.send_signal(number)
        process.wait(STOP_S)
        assert_all_stop(folder)
