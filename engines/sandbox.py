"""Pool of killable processes that work on untrusted bytes.

Each job runs in a process of its own, forked from a warm child that never touches a document. It
sees neither the parent's environment (keys) nor its files; see `engines.confinement`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from engines.confinement import pass_file
from engines.sandbox_child import (
    FAILED,
    FORK,
    FRAME,
    JOB,
    MAX_MESSAGE_BYTES,
    MAX_RESULT_BYTES,
    NUMBER,
    READY,
    REFUSED,
    RESULT,
    WAIT,
)
from schemas import errors

KILL_EXIT_CODES = frozenset({-signal.SIGKILL, -signal.SIGTERM})
_CPU_LIMIT_EXIT_CODE = -signal.SIGXCPU
_POLL_INTERVAL_S = 0.05
_START_TIMEOUT_S = 120.0
_EXIT_TIMEOUT_S = 5.0
"""Time for a process to end after it has closed its socket or was killed."""
# Nothing else: the parent's environment may hold keys.
_INHERITED_VARIABLES = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT")
_CONSTANT_VARIABLES = {
    "HOME": "/nonexistent",
    "PYTHONDONTWRITEBYTECODE": "1",
    # A child with threads could fork while one of them holds a lock.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",  # macOS ends forked processes otherwise
}
DOCUMENT_ERRORS = {
    kind.__name__: kind for kind in (errors.UnreadableDocument, errors.LimitExceeded)
}
"""Errors that a job may raise in the parent: they concern its document alone."""
_ERROR_CODE = re.compile(r"[A-Z][A-Z_]{0,39}")


class BrokenReplyError(ValueError):
    """A job sent something else than a reply: its process is under the document's control."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one job."""

    deadline_s: float = 120.0
    memory_bytes: int = 2 * 1024**3


@dataclass(eq=False)
class _ChildProcess:
    """A warm child, and the socket over which it takes requests to fork."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    output_file: IO[bytes]

    def read_output_tail(self) -> str:
        self.output_file.seek(0)
        return self.output_file.read()[-600:].decode(errors="replace").strip()

    async def fork(self) -> _JobProcess:
        """Start the process of one job. Raises EOFError if the child has ended."""
        self.output_file.seek(0)  # also for the child, which shares the position
        self.output_file.truncate()
        with _open_channel() as (ours, theirs):
            # A child that waits for requests has an empty socket: this cannot block.
            socket.send_fds(self.channel, [FORK], [theirs.fileno()])
            pid = await self._read_number()
            reader, writer = await asyncio.open_connection(sock=ours)
            # asyncio owns the original; descriptors are sent on the copy.
            return _JobProcess(pid, ours.dup(), reader, writer)

    async def wait(self) -> int:
        """Wait for the end of the job's process; returns its exit code."""
        self.writer.write(WAIT)
        return await self._read_number()

    async def _read_number(self) -> int:
        return int(NUMBER.unpack(await self.reader.readexactly(NUMBER.size))[0])

    async def kill(self) -> None:
        self.process.kill()
        self.channel.close()
        await _close_writer(self.writer)
        # Reaps the child; otherwise it stays a zombie.
        await asyncio.to_thread(self.process.wait)
        self.output_file.close()


@dataclass(eq=False)
class _JobProcess:
    """A confined process that runs one job."""

    pid: int
    channel: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    exit_code: int | None = None
    """Set once the child has reaped the process: its number may then be another's."""
    measures: Mapping[str, str] = field(default_factory=dict)

    def get_resident_bytes(self) -> int:
        """Return the resident memory, or 0 where the system does not report it."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf(
                "SC_PAGE_SIZE"
            )
        except (OSError, IndexError, ValueError):
            return 0

    def kill(self) -> None:
        if self.exit_code is None:
            # The child may have been killed, and init have reaped the process.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        self.channel.close()
        await _close_writer(self.writer)


async def _close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@dataclass(eq=False)
class Sandbox:
    """Pool of `workers` children that import `modules` and call `prepare` before their first job.

    `prepare` may start no thread: a fork copies only the thread that calls it. Belongs to one event
    loop. `aclose` ends every child.
    """

    workers: int = 1
    limits: SandboxLimits = SandboxLimits()
    modules: tuple[str, ...] = ()
    prepare: Callable[[], object] | None = None
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
        """Run `function` in a process of its own and return its result.

        `function` must be at module level and its arguments picklable. The process may open no
        file: the content of `file` is passed as a descriptor, and a path that opens it becomes the
        first argument. The deadline starts when the process receives the job.

        Raises the UnreadableDocument or LimitExceeded that `function` raises; LimitExceeded
        (DEADLINE_EXCEEDED, MEMORY_EXCEEDED) after killing the process; UnreadableDocument
        (PARSER_CRASHED) if it dies, fails unexpectedly or sends no reply; TransientError
        (PARSER_CRASHED) if another process killed it.
        """
        deadline_s = deadline_s or self.limits.deadline_s
        # Pickled in this direction only: unpickling a reply would run a hostile document's code.
        job = pickle.dumps((function, arguments, deadline_s))
        async with self._fork_process(subject) as (child, process):
            with pass_file(file) as (descriptors, paths):
                if paths:
                    job = pickle.dumps((function, (*paths, *arguments), deadline_s))
                try:
                    kind, body = await self._run_job(process, job, descriptors, subject, deadline_s)
                    return _unwrap_reply(kind, body, subject, self.limits.memory_bytes)
                except BrokenReplyError as error:
                    raise make_crash_error(subject, str(error)) from error
                except (EOFError, ConnectionError) as error:
                    raise await self._explain_exit(child, process, subject) from error

    async def warm(self) -> None:
        """Start one child now instead of with the first job."""
        async with self._slots:
            self._idle_children.append(await self._acquire_child())

    async def fetch_measures(self) -> Mapping[str, str]:
        """Return the reason why each confinement measure is not in force, empty if it is.

        May start a child.
        """
        async with self._fork_process("the measures") as (_, process):
            return process.measures

    @asynccontextmanager
    async def _fork_process(self, subject: str) -> AsyncIterator[tuple[_ChildProcess, _JobProcess]]:
        """Yield a process that waits for a job, and kill it afterwards."""
        async with self._slots:
            child = await self._acquire_child()
            try:
                process = await child.fork()
            # A child that ended while it was idle, or a canceled fork, which would stay a zombie.
            except BaseException as error:
                end_error = self._make_end_error(child, subject)
                await self._terminate_child(child)
                if isinstance(error, EOFError | OSError):
                    raise end_error from error
                raise
            try:
                # Not `wait_for`: in Python 3.11 it loses a cancellation that comes with the frame.
                async with asyncio.timeout(_START_TIMEOUT_S):
                    kind, measures = await _read_frame(process.reader)
                process.measures = json.loads(measures)
                assert kind == READY
                yield child, process
            finally:
                # Shielded, so that a canceled job leaves no process behind.
                await asyncio.shield(self._end_process(child, process))

    async def _end_process(self, child: _ChildProcess, process: _JobProcess) -> None:
        # Also after a reply: what a document controls must not run on.
        process.kill()
        await process.close()
        try:
            if process.exit_code is None:
                async with asyncio.timeout(_EXIT_TIMEOUT_S):
                    await child.wait()
        except (EOFError, OSError, TimeoutError):
            await self._terminate_child(child)
        else:
            if child in self._children:
                self._idle_children.append(child)

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
            prepare = pickle.dumps(self.prepare)
            child.writer.write(FRAME.pack(JOB, len(prepare)) + prepare)
            async with asyncio.timeout(_START_TIMEOUT_S):
                await _read_frame(child.reader)
        except (EOFError, OSError, TimeoutError) as error:
            output_tail = child.read_output_tail()
            await self._terminate_child(child)
            raise RuntimeError(f"a sandbox child did not start: {output_tail}") from error
        except BaseException:
            await self._terminate_child(child)
            raise
        return child

    async def _terminate_child(self, child: _ChildProcess) -> None:
        if child in self._children:
            self._children.discard(child)
            # Shielded, so that a canceled job still waits for its child and leaves no zombie.
            await asyncio.shield(child.kill())

    async def _run_job(
        self,
        process: _JobProcess,
        job: bytes,
        descriptors: list[int],
        subject: str,
        deadline_s: float,
    ) -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        frame = FRAME.pack(JOB, len(job)) + job
        reply_task = asyncio.ensure_future(_read_frame(process.reader))
        try:
            # Descriptors travel with the first byte. A new socket is empty: this cannot block.
            socket.send_fds(process.channel, [frame[:1]], descriptors)
            process.writer.write(frame[1:])
            while not (await asyncio.wait({reply_task}, timeout=_POLL_INTERVAL_S))[0]:
                if loop.time() > deadline:
                    raise _make_deadline_error(subject, deadline_s)
                if process.get_resident_bytes() > self.limits.memory_bytes:
                    raise _make_memory_error(subject, self.limits.memory_bytes)
            return reply_task.result()
        finally:
            reply_task.cancel()

    def _make_end_error(self, child: _ChildProcess, subject: str) -> errors.TransientError:
        """Return the error of a child that has ended, through no fault of the document."""
        if child in self._children:
            return make_killed_error(subject)
        return errors.EngineUnavailable(
            f"Reading {subject} was interrupted because the sandbox is shutting down."
        )

    async def _explain_exit(
        self, child: _ChildProcess, process: _JobProcess, subject: str
    ) -> errors.AnabranchError:
        """Return the error that explains why the process closed its socket."""
        if child not in self._children:
            return self._make_end_error(child, subject)
        try:
            async with asyncio.timeout(_EXIT_TIMEOUT_S):
                code = process.exit_code = await child.wait()
        # Before OSError, of which it is a subclass.
        except TimeoutError:
            await self._terminate_child(child)
            return make_crash_error(subject, "the process closed its socket and did not end")
        except (EOFError, OSError):
            return make_killed_error(subject)
        output_tail = child.read_output_tail()
        if code == _CPU_LIMIT_EXIT_CODE:
            return _make_deadline_error(subject, None)
        if code in KILL_EXIT_CODES:
            return make_killed_error(subject)
        # C++ code aborts when an allocation fails; only its output names the cause.
        if "bad_alloc" in output_tail or "MemoryError" in output_tail:
            return _make_memory_error(subject, self.limits.memory_bytes)
        return make_crash_error(
            subject,
            f"the process ended with {code}"
            + (f": {output_tail.splitlines()[-1]}" if output_tail else ""),
        )


@contextmanager
def _open_channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a socket, and close the second one, or it would not end with the child."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        try:
            yield ours, theirs
        except BaseException:
            ours.close()
            raise


async def _start_child(modules: tuple[str, ...], memory_bytes: int) -> _ChildProcess:
    with _open_channel() as (ours, theirs), contextlib.ExitStack() as stack:
        # Awaited first: a start that is canceled later would leave a process.
        reader, writer = await asyncio.open_connection(sock=ours)
        stack.callback(writer.close)
        output_file = stack.enter_context(tempfile.TemporaryFile())
        process = _spawn_process(theirs.fileno(), modules, memory_bytes, output_file)
        stack.pop_all()
        return _ChildProcess(process, ours.dup(), reader, writer, output_file)


def _spawn_process(
    channel: int, modules: tuple[str, ...], memory_bytes: int, output_file: IO[bytes]
) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    environment |= _CONSTANT_VARIABLES
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [
        sys.executable,
        "-P",  # modules in the working directory must not shadow ours
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
    if size > (MAX_RESULT_BYTES if kind == RESULT else MAX_MESSAGE_BYTES):
        raise BrokenReplyError(f"the process announced a reply of {size:,} bytes")
    return kind, await reader.readexactly(size)


def _unwrap_reply(kind: bytes, body: bytes, subject: str, memory_bytes: int) -> bytes:
    """Return the result, or raise the error of the document that the reply describes."""
    if kind == RESULT:
        return body
    try:
        parts = json.loads(body)
    # json raises RecursionError for deeply nested values.
    except (ValueError, RecursionError) as error:
        raise BrokenReplyError("the process sent a reply that is not JSON") from error
    match kind, parts:
        case (k, [str(name), str(detail), str(code), str(remedy)]) if (
            k == REFUSED and name in DOCUMENT_ERRORS and _ERROR_CODE.fullmatch(code)
        ):
            raise DOCUMENT_ERRORS[name](detail, code=code, remedy=remedy)
        case (k, ["MemoryError", str(), str()]) if k == FAILED:
            raise _make_memory_error(subject, memory_bytes)
        case (k, [str(name), str(message), str(location)]) if k == FAILED:
            raise make_crash_error(subject, f"{name} at {location}: {message}")
    raise BrokenReplyError("the process sent a reply of an unknown kind")


T = TypeVar("T")


def decode_reply(decode: Callable[[bytes], T], data: bytes, subject: str) -> T:
    """Decode a result, which a hostile document may have made up.

    Raises UnreadableDocument (PARSER_CRASHED) unless `decode` accepts it.
    """
    try:
        return decode(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise make_crash_error(
            subject, f"the process sent an invalid result ({type(error).__name__})"
        ) from error


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


def make_crash_error(subject: str, reason: str) -> errors.UnreadableDocument:
    return errors.UnreadableDocument(
        f"The parser crashed on {subject}: {reason}",
        code="PARSER_CRASHED",
        remedy="Save the file again in the same or another format and send that.",
    )


def make_killed_error(subject: str) -> errors.TransientError:
    # Transient: a shutdown or the OOM killer ends children through no fault of the document.
    crash_error = make_crash_error(subject, "the child process was killed")
    return errors.TransientError(
        crash_error.detail, code=crash_error.code, remedy=crash_error.remedy
    )
