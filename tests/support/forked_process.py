"""Fork worker processes from one that has imported everything, to save the imports."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
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
    ]
)


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

    def wait(self) -> int:
        self.process.join()
        assert self.process.exitcode is not None
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
