"""Fork workers and commands from a process that has imported everything, to save the imports."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(
    [
        "tests.faults.worker",
        "tests.support.kafka_worker",
        "tests.support.failing_worker",
        "tests.support.null_worker",
        "engines.embed.openai",
        "engines.language_detector",
        "engines.chunk",
        "engines.chunk.fixed_size",
        "anabranch.cli.documents",
        "anabranch.cli.ingest",
        "anabranch.cli.query",
        "anabranch.cli.up",
        "tests.support.preloaded",
    ]
)
STANDARD_STREAMS = (("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))
"""Name, mode and buffering: Python writes stderr line by line, and stdout in blocks to a file."""


@dataclass(frozen=True)
class ForkedProcess:
    """The part of `subprocess.Popen` that tests use."""

    process: ForkServerProcess

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        self.process.terminate()

    def wait(self, timeout_s: float | None = None) -> int:
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.process.name), timeout_s or 0)
        return self.process.exitcode


def fork_process(
    main: Callable[[T], Any], argument: T, *, log: Path, environment: Mapping[str, str]
) -> ForkedProcess:
    """It runs `main(given)`, with what is here and these in its environment, and what it prints in
    the log; it ends with this process at the latest.
    """
    process = _FORKSERVER.Process(
        target=_run_child, args=(main, argument, log, {**os.environ, **environment}), daemon=True
    )
    process.start()
    return ForkedProcess(process)


def fork_command(
    arguments: Sequence[str],
    streams: tuple[Path, Path, Path],
    environment: Mapping[str, str],
) -> ForkedProcess:
    """Start `anabranch <arguments>` with only this environment and these files as stdin, stdout and
    stderr.

    The imports would take several times the CPU of most commands.
    """
    process = _FORKSERVER.Process(
        target=_run_command, args=([*arguments], streams, Path.cwd(), dict(environment))
    )
    process.start()
    return ForkedProcess(process)


def is_sigkilled(process: ForkedProcess) -> bool:
    return process.poll() == -signal.SIGKILL


def _run_child(
    main: Callable[[T], Any], argument: T, log: Path, environment: Mapping[str, str]
) -> None:
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(environment)
    main(argument)


def _run_command(
    arguments: Sequence[str],
    streams: Sequence[Path],
    working_folder: Path,
    environment: Mapping[str, str],
) -> None:
    """Do what `anabranch.__main__.program` does."""
    from anabranch.__main__ import prepare_process
    from anabranch.cli import main
    from anabranch.process.shutdown import exit_process

    # As in a process that a shell starts, even where this run ignores it, as below nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number, (path, (name, mode, buffering)) in enumerate(
        zip(streams, STANDARD_STREAMS, strict=True)
    ):
        with path.open(mode) as file:
            os.dup2(file.fileno(), number)
        setattr(sys, name, os.fdopen(number, mode, buffering, encoding="utf-8", closefd=False))
    os.chdir(working_folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # an import may have cached the folder of the parent
    prepare_process()
    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    exit_process(code)
