"""Whatever ends `anabranch`, nothing that it started is left running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.process.data_folder import locked, make_folder
from anabranch.process.database import FOLDER
from sql.embedded import LOCATION
from tests.journey.served import START_S, Up, anabranch, environment, heed_signals

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


@contextmanager
def killed_at_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the process if the test fails to stop it: it would run on, and its ResourceWarning would fail the next test."""
    try:
        yield
    finally:
        process.kill()
        process.wait()


def catches(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGINT, signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGHUP)],
    ids=lambda signals: "+".join(number.name for number in signals),
)
def test_no_process_survives_up_whatever_stops_it(folder: Path, signals: Sequence[signal.Signals]) -> None:
    server = Up(folder, **{MARK: str(folder)})
    with killed_at_end(server.process):
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
    first = Up(folder, **{MARK: str(folder)})
    with killed_at_end(first.process):
        first.wait_ready()
    second = Up(folder, **{MARK: str(folder)})
    with killed_at_end(second.process):
        second.wait_ready()
        time.sleep(1)
        assert runs_postgres(folder), "the first one's guardian left it to the second"
    assert_all_stop(folder)


def test_interrupted_start_leaves_no_process(folder: Path) -> None:
    for started in (lambda: bool(processes_of(folder)), lambda: runs_postgres(folder)):
        server = Up(folder, **{MARK: str(folder)})
        with killed_at_end(server.process):
            wait_until(started, START_S)
            for _ in range(2):
                server.process.send_signal(signal.SIGINT)
                time.sleep(0.1)
            server.process.wait(STOP_S)
            assert_all_stop(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_started_with_sigint_ignored_can_be_stopped(folder: Path, number: signal.Signals) -> None:
    make_folder(folder)
    command = [sys.executable, "-m", "anabranch", "documents", "list", "--data", str(folder)]
    # The command waits 60 s for the server that seems to be starting in a locked folder.
    with locked(folder):
        process = subprocess.Popen(
            command,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        with killed_at_end(process):
            wait_until(lambda: catches(process, signal.SIGTERM))
            process.send_signal(number)
            process.wait(STOP_S)


def test_closed_terminal_stops_up(folder: Path) -> None:
    ours, theirs = os.openpty()
    ready = folder.parent / "ready.json"
    command = [sys.executable, "-m", "anabranch", "up", "--data", str(folder), "--port", "0", "--ready-file", str(ready)]
    # The new session takes the terminal as its own, as a terminal window's shell does.
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**{MARK: str(folder)}), preexec_fn=heed_signals
    )
    os.close(theirs)
    with killed_at_end(process):
        wait_until(ready.exists, START_S)
        os.close(ours)
        process.wait(STOP_S)
        assert_all_stop(folder)


def test_interrupted_command_stops_the_server_it_started(folder: Path) -> None:
    assert anabranch("db", "migrate", "--data", str(folder)).returncode == 0
    command = [sys.executable, "-m", "anabranch", "documents", "list", "--data", str(folder)]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        process = subprocess.Popen(
            command, env=environment(**{MARK: str(folder)}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=heed_signals
        )
        with killed_at_end(process):
            wait_until(lambda: runs_postgres(folder), START_S)
            process.send_signal(number)
            process.wait(STOP_S)
            assert_all_stop(folder)
