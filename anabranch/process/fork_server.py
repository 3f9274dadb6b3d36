"""Fork server: start commands in processes that share the modules which one process has imported.

`ForkServer` starts the program and requests forks over a socket; `serve_forks` is its loop. It has
no threads and no event loop, so that a fork copies nothing that runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from anabranch.process.shutdown import exit_process

PROGRAM = "anabranch.fork_server"
STDIN_FD, STDOUT_FD, STDERR_FD = range(3)
MAX_REQUEST_BYTES = 65_536
REPLY = struct.Struct("!i")
"""Process id of the new process."""
COMM_FILE = Path("/proc/self/comm")
"""Name of the process in `ps` and `top`, where the system has it (proc(5))."""


@dataclass(slots=True)
class ForkedProcess:
    """A command in a process of its own, whose stdin is a pipe that this process holds."""

    pid: int
    stdin_fd: int
    exit_code: asyncio.StreamReader
    """Ends with the process. Before that, the process writes its exit code."""
    has_ended: bool = False

    def write(self, line: bytes) -> None:
        # The process may have ended; its exit code says why.
        with suppress(BrokenPipeError):
            os.write(self.stdin_fd, line)

    async def wait(self) -> int | None:
        """Wait for the end; returns the exit code, None if the process was killed."""
        code = await self.exit_code.read()
        if not self.has_ended:
            os.close(self.stdin_fd)
        self.has_ended = True
        return int(code) if code else None

    def send_signal(self, number: signal.Signals) -> None:
        """Send the signal, unless the process has ended."""
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass(slots=True)
class ForkServer:
    """Client of the fork server, which starts with the context and imports modules meanwhile.

    The server ends with the context or this process, however that ends; the processes that it
    started end with their stdin. A server that was killed is started again.
    """

    _process: subprocess.Popen[bytes] = field(init=False)
    _control: socket.socket = field(init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __enter__(self) -> ForkServer:
        self._start_server()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        self._stop_server()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    async def fork(self, name: str, arguments: Sequence[str], output_fd: int) -> ForkedProcess:
        """Run `anabranch <arguments>` in a new process, with `name` as its name in `ps`.

        Waits until the server has imported its modules. Raises ConnectionError if it ended.
        """
        request = json.dumps({"name": name, "arguments": [*arguments]}).encode()
        with _open_pipe() as (stdin, stdin_fd), _open_pipe() as (exit_fd, exit_code):
            # One at a time: a reply does not say to which request it belongs.
            async with self._lock:
                pid = await self._request_fork(request, [stdin, exit_code, output_fd])
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(exit_fd), "rb")
            )
            return ForkedProcess(pid, os.dup(stdin_fd), reader)

    async def _request_fork(self, request: bytes, descriptors: Sequence[int]) -> int:
        try:
            # A request is smaller than the socket's buffer: this cannot block.
            socket.send_fds(self._control, [request], descriptors)
            reply = await asyncio.get_running_loop().sock_recv(self._control, REPLY.size)
            if not reply:
                raise ConnectionResetError("The fork server ended.")
        except ConnectionError:
            self._stop_server()
            self._start_server()
            raise
        return int(REPLY.unpack(reply)[0])

    def _start_server(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                # -P: modules in the working directory must not shadow ours.
                [sys.executable, "-P", "-m", PROGRAM],
                # Without the working directory, which an empty entry would stand for.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=theirs.fileno(),
                stdout=STDERR_FD,
                # Ctrl-C then reaches only this process, which stops its children in order.
                start_new_session=True,
            )

    def _stop_server(self) -> None:
        self._control.close()
        # Killed rather than left to end by itself: it may still be importing.
        self._process.kill()
        self._process.wait()


@contextmanager
def _open_pipe() -> Iterator[tuple[int, int]]:
    descriptors = os.pipe()
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def serve_forks(run: Callable[[Sequence[str]], int]) -> None:
    """Fork a process for each request on stdin, until stdin is closed.

    The process calls `run` with the arguments of the request, and ends with its exit code.
    """
    # The kernel reaps the children. They report their exit codes themselves.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control = socket.socket(fileno=os.dup(STDIN_FD))
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 3)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _run_child(run, request, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(REPLY.pack(pid))


def _run_child(
    run: Callable[[Sequence[str]], int], request: bytes, stdin: int, exit_code: int, output: int
) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A session of its own, as a command that a shell starts.
    os.setsid()
    for descriptor, standard in ((stdin, STDIN_FD), (output, STDOUT_FD), (output, STDERR_FD)):
        os.dup2(descriptor, standard)
    os.close(stdin)
    os.close(output)
    # A program that the command starts must not hold the pipe open.
    os.set_inheritable(exit_code, False)
    code = 1
    try:
        fields = json.loads(request)
        if COMM_FILE.exists():
            COMM_FILE.write_text(f"anabranch-{fields['name']}")
        code = run(fields["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    with suppress(BrokenPipeError):  # the parent has ended
        os.write(exit_code, str(code).encode())
    exit_process(code)
