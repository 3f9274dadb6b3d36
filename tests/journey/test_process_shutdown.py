"""Processes that stop: by signals, with their parent, in order, and interrupted commands."""

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

from anabranch.process.data_folder import lock_folder, make_folder
from anabranch.process.database import POSTGRES_FOLDER
from sql.embedded.server import LOCATION_FILE
from tests.support.eventually import eventually_blocking
from tests.support.server_process import (
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    StartedProcess,
    UpProcess,
    make_environment,
    reset_stop_signals,
    run_anabranch,
)

MARKER_VARIABLE = "STARTED_BY_TEST"
"""In the environment of everything that a test started; Postgres overwrites its own, and is found
by its data folder.
"""


def list_processes(folder: Path) -> list[str]:
    elsewhere = folder / POSTGRES_FOLDER / LOCATION_FILE
    data = (
        elsewhere.read_text().splitlines()[0]
        if elsewhere.exists()
        else str(folder / POSTGRES_FOLDER)
    )
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (
                (process / "cmdline").read_bytes(),
                (process / "environ").read_bytes(),
            )
        except OSError:
            continue
        if (
            f"{MARKER_VARIABLE}={folder}\0".encode() in variables
            or f"{data}/data".encode() in command
        ):
            found.append(command.replace(b"\0", b" ").decode())
    return [command for command in found if command]


def is_postgres_running(folder: Path) -> bool:
    return any("bin/postgres" in command for command in list_processes(folder))


def assert_all_stop(folder: Path) -> None:
    eventually_blocking(
        lambda: list_processes(folder), lambda running: not running, stall_s=STOP_TIMEOUT_S
    )


@contextmanager
def killed_at_end(process: StartedProcess) -> Iterator[None]:
    """Kill the process if the test fails to stop it: it would run on, and its ResourceWarning would
    fail the next test.
    """
    try:
        yield
    finally:
        process.kill()
        process.wait()


def catches(process: StartedProcess, number: signal.Signals) -> bool:
    caught = re.search(
        r"^SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE
    )
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def is_waiting(process: StartedProcess) -> bool:
    """Return whether the process uses no CPU: all that it needs is imported.

    Python may lose an interrupt that arrives inside an import's native code.
    """
    before = read_cpu_ticks(process)
    time.sleep(0.5)
    return read_cpu_ticks(process) - before <= 5


def read_cpu_ticks(process: StartedProcess) -> int:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize(
    "signals",
    [
        pytest.param((signal.SIGINT, signal.SIGTERM, signal.SIGINT), id="interrupts"),
        # A closed terminal sends it too.
        pytest.param((signal.SIGHUP, signal.SIGHUP), id="hang-ups", marks=pytest.mark.long),
    ],
)
def test_no_process_survives_stopped_up(folder: Path, signals: Sequence[signal.Signals]) -> None:
    server = UpProcess(folder, **{MARKER_VARIABLE: str(folder)})
    with killed_at_end(server.process):
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
    first = UpProcess(folder, **{MARKER_VARIABLE: str(folder)})
    with killed_at_end(first.process):
        first.wait_ready()
    second = UpProcess(folder, **{MARKER_VARIABLE: str(folder)})
    with killed_at_end(second.process):
        second.wait_ready()
        time.sleep(1)
        assert is_postgres_running(folder), "the first one's guardian left it to the second"
    assert_all_stop(folder)


@pytest.mark.parametrize(
    "is_started",
    [
        # `test_interrupt.py` interrupts each import.
        pytest.param(list_processes, id="importing", marks=pytest.mark.long),
        pytest.param(is_postgres_running, id="starting Postgres"),
    ],
)
def test_interrupted_start_leaves_no_process(
    folder: Path, is_started: Callable[[Path], object]
) -> None:
    server = UpProcess(folder, **{MARKER_VARIABLE: str(folder)})
    with killed_at_end(server.process):
        eventually_blocking(lambda: bool(is_started(folder)), stall_s=START_TIMEOUT_S)
        for _ in range(2):
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        server.process.wait(STOP_TIMEOUT_S)
        assert_all_stop(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_started_with_sigint_ignored_can_be_stopped(
    folder: Path, number: signal.Signals
) -> None:
    make_folder(folder)
    command = [sys.executable, "-m", "anabranch", "documents", "list", "--data", str(folder)]
    # The command waits 60 s for the server that seems to be starting in a locked folder.
    with lock_folder(folder):
        process = subprocess.Popen(
            command,
            env=make_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        with killed_at_end(process):
            eventually_blocking(
                # Ctrl-C may be lost while a module is imported.
                lambda: (
                    catches(process, signal.SIGTERM)
                    and (number == signal.SIGTERM or is_waiting(process))
                ),
                stall_s=STOP_TIMEOUT_S,
            )
            process.send_signal(number)
            process.wait(STOP_TIMEOUT_S)


def test_closed_terminal_stops_up(folder: Path) -> None:
    ours, theirs = os.openpty()
    ready_file = folder.parent / "ready.json"
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
        str(ready_file),
    ]
    # The new session takes the terminal as its own, as a terminal window's shell does.
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=make_environment(**{MARKER_VARIABLE: str(folder)}),
        preexec_fn=reset_stop_signals,
    )
    os.close(theirs)
    with killed_at_end(process):
        eventually_blocking(ready_file.exists, stall_s=START_TIMEOUT_S)
        os.close(ours)
        process.wait(STOP_TIMEOUT_S)
        assert_all_stop(folder)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        # The program handles these two as it does SIGINT.
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
        signal.SIGKILL,
    ],
)
def test_interrupted_command_stops_its_server(folder: Path, number: signal.Signals) -> None:
    assert run_anabranch("db", "migrate", "--data", str(folder)).returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "documents", "list", "--data", str(folder)],
        env=make_environment(**{MARKER_VARIABLE: str(folder)}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=reset_stop_signals,
    )
    with killed_at_end(process):
        eventually_blocking(lambda: is_postgres_running(folder), stall_s=START_TIMEOUT_S)
        process.send_signal(number)
        process.wait(STOP_TIMEOUT_S)
        assert_all_stop(folder)


# As `documents delete` does it: the prompt is shown by a task of asyncio.run().
PROMPT = """
import asyncio
from anabranch.cli.output import confirm

async def ask() -> None:
    confirm("Delete the document?", yes=False)

asyncio.run(ask())
"""


def test_one_interrupt_ends_a_prompt() -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROMPT],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=make_environment(),
        preexec_fn=reset_stop_signals,
    )
    os.close(theirs)
    try:
        prompt = b""
        while b"[y/N]" not in prompt:
            prompt += os.read(ours, 1024)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


# Interrupts the import of the module that the argument names.
INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
from anabranch.__main__ import program
program()
"""


@pytest.mark.parametrize("module", ["anabranch.cli", "cyclopts", "anabranch.process.shutdown"])
def test_interrupt_while_the_program_starts_prints_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module],
        capture_output=True,
        text=True,
        env=make_environment(),
        preexec_fn=reset_stop_signals,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGTERM], 0),
        ([signal.SIGHUP], 0),
        ([signal.SIGTERM, signal.SIGINT], 130),
    ],
    ids=lambda value: str(value),
)
def test_interrupted_server_exits_as_interrupted(numbers: list[signal.Signals], code: int) -> None:
    program = (
        "import asyncio, os; from anabranch.process.shutdown import run_until_stopped\n"
        "async def work():\n"
        f"  [os.kill(os.getpid(), number) for number in {[int(number) for number in numbers]}]\n"
        "  await asyncio.sleep(10)\n"
        "raise SystemExit(asyncio.run(run_until_stopped(work())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=make_environment(),
        preexec_fn=reset_stop_signals,
        check=False,
    )
    assert done.returncode == code
