"""Supervise a child process: restart it with a growing pause."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import structlog

from schemas.errors import FatalError

log = structlog.get_logger(__name__)

EXIT_MISCONFIGURED = 2
HEALTHY_S = 30.0
STOP_TIMEOUT_S = 8.0
MAX_FIRST_STARTS = 5
STDERR_FD = 2
"""The child's stdout goes to stderr: the parent's stdout is for results."""


@dataclass(slots=True)
class ChildProcess:
    """Run `anabranch <arguments>` with a pipe as stdin: it stops when this process ends, for
    whatever reason.
    """

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    output: IO[bytes] | None
    on_start: Callable[[], None]
    first_pause_s: float = 0.5
    max_pause_s: float = 15.0
    is_settled: bool = False
    process: Process | None = None

    async def supervise(self) -> None:
        """Supervise until cancelled.

        Before the child is `settled`, raise FatalError if it reports MISCONFIGURED or keeps ending.
        Afterwards always restart it, so that the other processes continue.
        """
        pause = self.first_pause_s
        starts = 0
        while True:
            lifetime_s, code = await self._run_once()
            starts += 1
            if not self.is_settled:
                self._check_startup(code, starts)
            pause = (
                self.first_pause_s if lifetime_s > HEALTHY_S else min(self.max_pause_s, pause * 2)
            )
            log.error("process_restarted", process=self.name, exit_code=code, pause_s=pause)
            await asyncio.sleep(pause)

    def _check_startup(self, code: int, starts: int) -> None:
        if code == EXIT_MISCONFIGURED:
            raise FatalError(
                f"{self.name} cannot start as configured; its own message is {self._describe_output()}",
                code="MISCONFIGURED",
            )
        if starts >= MAX_FIRST_STARTS:
            raise FatalError(
                f"{self.name} ended {starts} times before it was ready; its own messages are {self._describe_output()}",
                code="KEEPS_ENDING",
            )

    def _describe_output(self) -> str:
        return "above" if self.output is None else f"at the end of {self.output.name}"

    async def _run_once(self) -> tuple[float, int]:
        """Return how long the child ran, and its exit code."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        self.on_start()
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "anabranch", *self.arguments),
            stdin=PIPE,
            stdout=STDERR_FD if self.output is None else self.output,
            stderr=self.output,
            env=dict(self.environment),
            start_new_session=True,
        )
        code = await self.process.wait()
        return loop.time() - started_at, code

    async def stop(self) -> None:
        """Terminate the process; kill it after the timeout."""
        if self.process is None or self.process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.process.wait()
        except TimeoutError:
            log.warning("process_killed", process=self.name)
            self.kill()
            await self.process.wait()

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
