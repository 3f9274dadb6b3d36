"""Killable child processes for work on bytes that nobody vouches for.

Children start when first needed, stay warm, and are replaced after a number of jobs, after growing, and whenever a job had to be
stopped. They see neither the parent's environment (keys) nor its files, and are confined as `engines.confinement` says.
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

KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM})
_OUT_OF_TIME = -signal.SIGXCPU
_WATCH_S = 0.05
_START_S = 120.0
_PASSED_ON = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """`deadline_s` and `memory_bytes` bound one job; a child that outlived `jobs` jobs or keeps more than half of its memory is replaced."""

    deadline_s: float = 120.0
    memory_bytes: int = 2 * 1024**3
    jobs: int = 500


@dataclass(eq=False)
class _Child:
    process: subprocess.Popen[bytes]
    channel: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    complaints: IO[bytes]
    jobs: int = 0
    measures: Mapping[str, str] = field(default_factory=dict)

    def resident(self) -> int:
        """Bytes in RAM; 0 where the system does not say."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def last_words(self) -> str:
        self.complaints.seek(0)
        return self.complaints.read()[-600:].decode(errors="replace").strip()

    async def kill(self) -> None:
        self.process.kill()
        self.channel.close()
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()
        await asyncio.to_thread(self.process.wait)
        self.complaints.close()


@dataclass(eq=False)
class Sandbox:
    """A pool of `workers` children that import `modules` before their first job. Belongs to one event loop; `aclose` leaves no child behind."""

    workers: int = 1
    limits: SandboxLimits = SandboxLimits()
    modules: tuple[str, ...] = ()
    _idle: list[_Child] = field(default_factory=list)
    _all: set[_Child] = field(default_factory=set)
    _places: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.workers)

    async def run(
        self, function: Callable[..., bytes], *arguments: object, file: Path | None = None, about: str = "the document", deadline_s: float | None = None
    ) -> bytes:
        """Return what `function` (module level, picklable arguments) returns in a child. Its own errors of ours come through.

        The child may open no file. Where `file` is given, its content is handed in as a descriptor, and a path that opens it is the first argument.

        Raises LimitExceeded (DEADLINE_EXCEEDED, MEMORY_EXCEEDED) after killing the child, UnreadableDocument (PARSER_CRASHED) when the
        child dies or fails in an unforeseen way, TransientError (PARSER_CRASHED) when somebody else killed it. The deadline counts from the moment the child takes the job.
        """
        async with self._places:
            child = await self._take()
            deadline_s = deadline_s or self.limits.deadline_s
            try:
                with _handed_in(file) as (descriptors, paths):
                    job = pickle.dumps((function, (*paths, *arguments), deadline_s))
                    kind, body = await self._ask(child, job, descriptors, about, deadline_s)
            except BaseException:
                await self._drop(child)
                raise
            await self._put_back(child)
        return _unwrap(kind, body, about)

    async def warm(self) -> None:
        """Start one child now rather than with the first job."""
        async with self._places:
            self._idle.append(await self._take())

    async def measures(self) -> Mapping[str, str]:
        """Return each measure that confines a child, with the reason where it does not hold here."""
        async with self._places:
            child = await self._take()
            self._idle.append(child)
            return child.measures

    async def aclose(self) -> None:
        self._idle.clear()
        for child in tuple(self._all):
            await self._drop(child)

    async def _take(self) -> _Child:
        if self._idle:
            return self._idle.pop()
        child = await _start(self.modules, self.limits.memory_bytes)
        self._all.add(child)
        try:
            kind, measures = await asyncio.wait_for(_read_frame(child.reader), _START_S)
            assert kind == READY
            child.measures = json.loads(measures)
        except (EOFError, TimeoutError) as error:
            said = child.last_words()
            await self._drop(child)
            raise RuntimeError(f"a sandbox child did not start: {said}") from error
        return child

    async def _put_back(self, child: _Child) -> None:
        child.jobs += 1
        if child.jobs >= self.limits.jobs or child.resident() > self.limits.memory_bytes // 2:
            await self._drop(child)
        else:
            self._idle.append(child)

    async def _drop(self, child: _Child) -> None:
        if child in self._all:
            self._all.discard(child)
            await asyncio.shield(child.kill())

    async def _ask(self, child: _Child, job: bytes, descriptors: list[int], about: str, deadline_s: float) -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        stop_at = loop.time() + deadline_s
        frame = FRAME.pack(b"j", len(job)) + job
        answer = asyncio.ensure_future(_read_frame(child.reader))
        try:
            # Descriptors ride on the first byte. Nothing is under way to an idle child, so this byte never waits.
            socket.send_fds(child.channel, [frame[:1]], descriptors)
            child.writer.write(frame[1:])
            while not (await asyncio.wait({answer}, timeout=_WATCH_S))[0]:
                if loop.time() > stop_at:
                    raise _too_slow(about, deadline_s)
                if child.resident() > self.limits.memory_bytes:
                    raise _too_big(about, self.limits.memory_bytes)
            return answer.result()
        except (EOFError, ConnectionError) as error:
            if child not in self._all:
                raise errors.EngineUnavailable(f"{about} was not read: the reader is being closed") from error
            raise await _died(child, about, self.limits.memory_bytes) from error
        finally:
            answer.cancel()


@contextmanager
def _handed_in(file: Path | None) -> Iterator[tuple[list[int], list[str]]]:
    """Descriptors that go with a job, and paths where the system has no such descriptors.

    The content is copied into sealed memory (memfd_create(2)), which any account opens by /proc/self/fd and Landlock lets pass; the file itself
    could be opened again only where its folder may be read.
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
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
            yield [descriptor], []
        finally:
            os.close(descriptor)


async def _start(modules: tuple[str, ...], memory: int) -> _Child:
    ours, theirs = socket.socketpair()
    complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
    with theirs:
        process = _spawn(theirs.fileno(), modules, memory, complaints)
    ours.setblocking(False)
    channel = ours.dup()
    reader, writer = await asyncio.open_connection(sock=ours)
    return _Child(process, channel, reader, writer, complaints)


def _spawn(channel: int, modules: tuple[str, ...], memory: int, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment |= {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "engines.sandbox_child", str(channel), str(os.getpid()), str(memory), *modules]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=complaints, stderr=complaints, pass_fds=(channel,), env=environment, start_new_session=True
    )


async def _read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind, size = FRAME.unpack(await reader.readexactly(FRAME.size))
    return kind, await reader.readexactly(size)


async def _died(child: _Child, about: str, memory: int) -> errors.AnabranchError:
    """Of what the document did to it; but a system that is being stopped, or is short of memory, kills children for no fault of a document."""
    code = await asyncio.to_thread(child.process.wait)
    said = child.last_words()
    if code == _OUT_OF_TIME:
        return _too_slow(about, None)
    if code in KILLED:
        crashed = _crashed(about, "the child process was killed")
        return errors.TransientError(crashed.detail, code=crashed.code, remedy=crashed.remedy)
    if "bad_alloc" in said or "MemoryError" in said:
        return _too_big(about, memory)
    return _crashed(about, f"the child process ended with {code}" + (f": {said.splitlines()[-1]}" if said else ""))


def _unwrap(kind: bytes, body: bytes, about: str) -> bytes:
    if kind == RESULT:
        return body
    parts = json.loads(body)
    if kind == REFUSED:
        raise _refusal(*parts)
    assert kind == FAILED
    name, message, place = parts
    if name == "MemoryError":
        raise errors.LimitExceeded(f"{about} needs more memory than is allowed", code="MEMORY_EXCEEDED", remedy=_SPLIT)
    raise _crashed(about, f"{name} at {place}: {message}")


def _refusal(module: str, name: str, detail: str, code: str, remedy: str) -> errors.AnabranchError:
    kind = getattr(errors, name, None) if module == errors.__name__ else None
    if not (isinstance(kind, type) and issubclass(kind, errors.AnabranchError)):
        return errors.UnreadableDocument(detail, code=code, remedy=remedy)
    return kind(detail, code=code, remedy=remedy)


_SPLIT = "Split the document into smaller files and send those."


def _too_slow(about: str, deadline_s: float | None) -> errors.LimitExceeded:
    bound = f"{deadline_s:g} s" if deadline_s else "its share of processor time"
    return errors.LimitExceeded(f"{about} was not read within {bound}", code="DEADLINE_EXCEEDED", remedy=_SPLIT)


def _too_big(about: str, memory: int) -> errors.LimitExceeded:
    return errors.LimitExceeded(f"reading {about} took more than {memory // 2**20} MiB of memory", code="MEMORY_EXCEEDED", remedy=_SPLIT)


def _crashed(about: str, why: str) -> errors.UnreadableDocument:
    return errors.UnreadableDocument(
        f"{about} broke the reader: {why}", code="PARSER_CRASHED", remedy="Open the file and save it again in the same or another format, then send that."
    )
