"""Fork workers and commands from a process that has imported everything, to save the imports."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tests.support.postgres_fixture import ensure_initdb

if TYPE_CHECKING:
    from anabranch.process.fork_server import ForkServer

T = TypeVar("T")
MODELS_FOLDER = Path(tempfile.gettempdir()) / f"anabranch-models-{os.geteuid()}"
"""Files that engines compute once, for the servers of all tests."""
_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(
    [
        "tests.faults.worker",
        "tests.support.kafka_worker",
        "tests.support.failing_worker",
        "tests.support.null_worker",
        "engines.embed.openai",
        "engines.language",
        "engines.chunk",
        "engines.chunk.fixed_size",
        "anabranch.cli.documents",
        "anabranch.cli.ingest",
        "anabranch.cli.query",
        "anabranch.cli.up",
        "anabranch.process.api_process",
        "anabranch.process.supervisor",
        "anabranch.process.supervisor",
        "anabranch.process.worker_process",
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
    arguments: Sequence[str], streams: tuple[Path, Path, Path], environment: Mapping[str, str]
) -> ForkedProcess:
    """Start `anabranch <arguments>` with only this environment and these files as stdin, stdout and
    stderr.

    The imports would take several times the CPU of most commands.
    """
    process = _FORKSERVER.Process(
        target=_run_command,
        args=([*arguments], streams, Path.cwd(), dict(environment), ensure_initdb()),
    )
    process.start()
    return ForkedProcess(process)


@dataclass(frozen=True)
class _Fork:
    """The part of `subprocess.Popen` that `ForkServer` uses."""

    pid: int

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


def _speed_up_servers(initdb: Path) -> None:
    """Let a server of this command start with a third of the CPU.

    Its fork server is a fork of this process, made before an event loop and its threads run, its
    database begins as a copy, and an engine loads its model when it is used.
    """
    import anabranch.config.engines
    import services.engines
    from anabranch.process.fork_server import ForkServer
    from sql.embedded.server import EmbeddedPostgres

    create_or_check = EmbeddedPostgres._create_or_check

    def copy_or_check(server: EmbeddedPostgres) -> None:
        if not (server.data / "PG_VERSION").exists():
            subprocess.run(["cp", "-a", str(initdb), str(server.data)], check=True)
        create_or_check(server)

    EmbeddedPostgres._create_or_check = copy_or_check  # type: ignore[method-assign, assignment]
    MODELS_FOLDER.mkdir(exist_ok=True)
    anabranch.config.engines.resolve_models_folder = lambda settings: MODELS_FOLDER
    services.engines.WARM_DELAY_S = 86_400.0
    start_program = ForkServer._start_server
    control, theirs = socket.socketpair()
    control.setblocking(False)
    with theirs:
        pid = os.fork()
        if pid == 0:
            control.close()
            _serve_forks(theirs)

    def start_server(server: ForkServer) -> None:
        # One that was killed is started again as the product does.
        ForkServer._start_server = start_program  # type: ignore[method-assign]
        server._control, server._process = control, _Fork(pid)  # type: ignore[assignment]

    ForkServer._start_server = start_server  # type: ignore[method-assign, assignment]


def _serve_forks(control: socket.socket) -> NoReturn:
    from anabranch.cli import main
    from anabranch.process.fork_server import serve_forks

    os.setsid()
    os.dup2(control.fileno(), 0)
    os.dup2(2, 1)
    for number in [int(file.name) for file in Path("/proc/self/fd").iterdir()]:
        if number > 2:
            with suppress(OSError):  # of the listing
                os.close(number)
    gc.freeze()
    try:
        serve_forks(main)
    finally:
        os._exit(0)


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
    initdb: Path,
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
    _speed_up_servers(initdb)
    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    exit_process(code)
