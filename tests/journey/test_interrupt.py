"""Ctrl-C in a terminal, at a prompt and while the program starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.server_process import make_environment, reset_stop_signals

# As `documents delete` does it: the prompt is shown by a task of asyncio.run().
PROMPT = """
import asyncio
from anabranch.cli.output import confirm

async def ask() -> None:
    confirm("Delete the document?")

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
