"""Pool of killable child processes that work on untrusted bytes.

Children start on demand and stay warm. They are replaced after a number of jobs, when their memory
has grown, and when a job had to be stopped. They see neither the parent's environment (keys) nor
its files; see `engines.confinement`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from engines.sandbox_child import FAILED, FRAME, READY, REFUSED, RESULT
from schemas import errors

KILL_EXIT_CODES = frozenset({-signal.SIGKILL, -signal.SIGTERM})
_CPU_LIMIT_EXIT_CODE = -signal.SIGXCPU
_POLL_INTERVAL_S = 0.05
_START_TIMEOUT_S = 120.0
# Nothing else: the parent's environment may hold keys.
_INHERITED_VARIABLES = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one job, and `max_jobs` per child.

    A child that keeps over half of its memory after a job is replaced.
    """

    deadline_s: float = 120.0
    memory_bytes: int = 2 * 1024**3
    max_jobs: int = 500


@dataclass(eq=False)
class _ChildProcess:
    process: subprocess.Popen[bytes]
    channel: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    output_file: IO[bytes]
    finished_jobs: int = 0
    measures: Mapping[str, str] = field(default_factory=dict)

    def get_resident_bytes(self) -> int:
        """Return the resident memory, or 0 where the system does not report it."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf(
                "SC_PAGE_SIZE"
            )
        except (OSError, IndexError, ValueError):
            return 0

    def read_output_tail(self) -> str:
        self.output_file.seek(0)
        return self.output_file.read()[-600:].decode(errors="replace").strip()

    async def kill(self) -> None:
        self.process.kill()
        self.channel.close()
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()
        # Reaps the child; otherwise it stays a zombie.
        await asyncio.to_thread(self.process.wait)
        self.output_file.close()


@dataclass(eq=False)
class Sandbox:
    """Pool of `workers` children that import `modules` before their first job.

    Belongs to one event loop. `aclose` ends every child.
    """

    workers: int = 1
    limits: SandboxLimits = SandboxLimits()
    modules: tuple[str, ...] = ()
    _idle_children: list[_ChildProcess] = field(default_factory=list)
    _children: set[_ChildProcess] = field(default_factory=set)
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.workers)

    async def run(
        self,
        function: Callable[..., bytes],
        *arguments: object,
        file: Path | None = None,
        subject: str = "the document",
        deadline_s: float | None = None,
    ) -> bytes:
        """Run `function` in a child and return its result.

        `function` must be at module level and its arguments picklable. The child may open no file:
        the content of `file` is passed as a descriptor, and a path that opens it becomes the first
        argument. The deadline starts when the child receives the job.

        Raises the AnabranchError that `function` raises; LimitExceeded (DEADLINE_EXCEEDED,
        MEMORY_EXCEEDED) after killing the child; UnreadableDocument (PARSER_CRASHED) if the child
        dies or fails unexpectedly; TransientError (PARSER_CRASHED) if another process killed it.
        """
        async with self._slots:
            child = await self._acquire_child()
            deadline_s = deadline_s or self.limits.deadline_s
            try:
                with _pass_file(file) as (descriptors, paths):
                    # Pickled in this direction only: unpickling a reply
                    # would run a hostile child's code.
                    job = pickle.dumps((function, (*paths, *arguments), deadline_s))
                    kind, body = await self._run_job(child, job, descriptors, subject, deadline_s)
            # Also on cancellation: a child in the middle of a job cannot take another.
            except BaseException:
                await self._terminate_child(child)
                raise
            await self._release_child(child)
        return _unwrap_reply(kind, body, subject, self.limits.memory_bytes)

    async def warm(self) -> None:
        """Start one child now instead of with the first job."""
        async with self._slots:
            self._idle_children.append(await self._acquire_child())

    async def fetch_measures(self) -> Mapping[str, str]:
        """Return the reason why each confinement measure is not in force, empty if it is.

        May start a child.
        """
        async with self._slots:
            child = await self._acquire_child()
            self._idle_children.append(child)
            return child.measures

    async def aclose(self) -> None:
        self._idle_children.clear()
        for child in tuple(self._children):
            await self._terminate_child(child)

    async def _acquire_child(self) -> _ChildProcess:
        if self._idle_children:
            return self._idle_children.pop()
        child = await _start_child(self.modules, self.limits.memory_bytes)
        self._children.add(child)
        try:
            kind, measures = await asyncio.wait_for(_read_frame(child.reader), _START_TIMEOUT_S)
            assert kind == READY
            child.measures = json.loads(measures)
        except (EOFError, TimeoutError) as error:
            output_tail = child.read_output_tail()
            await self._terminate_child(child)
            raise RuntimeError(f"a sandbox child did not start: {output_tail}") from error
        return child

    async def _release_child(self, child: _ChildProcess) -> None:
        child.finished_jobs += 1
        if (
            child.finished_jobs >= self.limits.max_jobs
            or child.get_resident_bytes() > self.limits.memory_bytes // 2
        ):
            await self._terminate_child(child)
        else:
            self._idle_children.append(child)

    async def _terminate_child(self, child: _ChildProcess) -> None:
        if child in self._children:
            self._children.discard(child)
            # Shielded, so that a canceled job still waits for its child and leaves no zombie.
            await asyncio.shield(child.kill())

    async def _run_job(
        self,
        child: _ChildProcess,
        job: bytes,
        descriptors: list[int],
        subject: str,
        deadline_s: float,
    ) -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        frame = FRAME.pack(b"j", len(job)) + job
        reply_task = asyncio.ensure_future(_read_frame(child.reader))
        try:
            # Descriptors travel with the first byte. An idle child's socket is empty: this cannot
            # block.
            socket.send_fds(child.channel, [frame[:1]], descriptors)
            child.writer.write(frame[1:])
            while not (await asyncio.wait({reply_task}, timeout=_POLL_INTERVAL_S))[0]:
                if loop.time() > deadline:
                    raise _make_deadline_error(subject, deadline_s)
                if child.get_resident_bytes() > self.limits.memory_bytes:
                    raise _make_memory_error(subject, self.limits.memory_bytes)
            return reply_task.result()
        except (EOFError, ConnectionError) as error:
            # `aclose` has killed it, which is no fault of the document.
            if child not in self._children:
                raise errors.EngineUnavailable(
                    f"Reading {subject} was interrupted because the sandbox is shutting down."
                ) from error
            raise await _explain_exit(child, subject, self.limits.memory_bytes) from error
        finally:
            reply_task.cancel()


@contextmanager
def _pass_file(file: Path | None) -> Iterator[tuple[list[int], list[str]]]:
    """Yield the descriptors to send with a job, or paths where memfd_create is missing.

    The content is copied into sealed memory (memfd_create(2)), which any account can open through
    /proc/self/fd and Landlock permits. A descriptor of the file itself could be reopened only with
    access to its folder.
    """
    if file is None:
        yield [], []
    elif sys.platform != "linux":
        yield [], [str(file)]
    else:
        descriptor = os.memfd_create("document", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with file.open("rb") as source, open(descriptor, "wb", closefd=False) as copy:
                shutil.copyfileobj(source, copy, 2**20)
            fcntl.fcntl(
                descriptor,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
            )
            yield [descriptor], []
        finally:
            os.close(descriptor)


async def _start_child(modules: tuple[str, ...], memory_bytes: int) -> _ChildProcess:
    parent_socket, child_socket = socket.socketpair()
    output_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
    # Close the parent's copy, or the stream would not end when the child does.
    with child_socket:
        process = _spawn_process(child_socket.fileno(), modules, memory_bytes, output_file)
    parent_socket.setblocking(False)
    channel = parent_socket.dup()  # asyncio owns the original; descriptors are sent on the copy
    reader, writer = await asyncio.open_connection(sock=parent_socket)
    return _ChildProcess(process, channel, reader, writer, output_file)


def _spawn_process(
    channel: int, modules: tuple[str, ...], memory_bytes: int, output_file: IO[bytes]
) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    environment |= {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [
        sys.executable,
        "-m",
        "engines.sandbox_child",
        str(channel),
        # The child exits if its parent is no longer this process.
        str(os.getpid()),
        str(memory_bytes),
        *modules,
    ]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output_file,
        stderr=output_file,
        pass_fds=(channel,),
        env=environment,
        # Ctrl-C in a terminal must not reach the children: the parent ends them.
        start_new_session=True,
    )


async def _read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind, size = FRAME.unpack(await reader.readexactly(FRAME.size))
    return kind, await reader.readexactly(size)


async def _explain_exit(
    child: _ChildProcess, subject: str, memory_bytes: int
) -> errors.AnabranchError:
    """Return the error that explains why the child exited."""
    code = await asyncio.to_thread(child.process.wait)
    output_tail = child.read_output_tail()
    if code == _CPU_LIMIT_EXIT_CODE:
        return _make_deadline_error(subject, None)
    if code in KILL_EXIT_CODES:
        # Transient: a shutdown or the OOM killer ends children through no fault of the document.
        crash_error = _make_crash_error(subject, "the child process was killed")
        return errors.TransientError(
            crash_error.detail, code=crash_error.code, remedy=crash_error.remedy
        )
    # C++ code aborts when an allocation fails; only its output names the cause.
    if "bad_alloc" in output_tail or "MemoryError" in output_tail:
        return _make_memory_error(subject, memory_bytes)
    return _make_crash_error(
        subject,
        f"the child process ended with {code}"
        + (f": {output_tail.splitlines()[-1]}" if output_tail else ""),
    )


def _unwrap_reply(kind: bytes, body: bytes, subject: str, memory_bytes: int) -> bytes:
    if kind == RESULT:
        return body
    parts = json.loads(body)
    if kind == REFUSED:
        module, name, detail, code, remedy = parts
        # Only our own error classes: a hostile child may send any name.
        error_class = getattr(errors, name, None) if module == errors.__name__ else None
        if not (isinstance(error_class, type) and issubclass(error_class, errors.AnabranchError)):
            error_class = errors.UnreadableDocument
        raise error_class(detail, code=code, remedy=remedy)
    assert kind == FAILED
    name, message, location = parts
    if name == "MemoryError":
        raise _make_memory_error(subject, memory_bytes)
    raise _make_crash_error(subject, f"{name} at {location}: {message}")


_SPLIT_REMEDY = "Split the document into smaller files."


def _make_deadline_error(subject: str, deadline_s: float | None) -> errors.LimitExceeded:
    limit = f"{deadline_s:g} s" if deadline_s else "the CPU time limit"
    return errors.LimitExceeded(
        f"Reading {subject} took more than {limit}.", code="DEADLINE_EXCEEDED", remedy=_SPLIT_REMEDY
    )


def _make_memory_error(subject: str, memory_bytes: int) -> errors.LimitExceeded:
    return errors.LimitExceeded(
        f"Reading {subject} took more than {memory_bytes // 2**20} MiB of memory.",
        code="MEMORY_EXCEEDED",
        remedy=_SPLIT_REMEDY,
    )


def _make_crash_error(subject: str, reason: str) -> errors.UnreadableDocument:
    return errors.UnreadableDocument(
        f"The parser crashed on {subject}: {reason}",
        code="PARSER_CRASHED",
        remedy="Save the file again in the same or another format and send that.",
    )
