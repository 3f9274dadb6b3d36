"""A process of ours under supervision: started again when it dies, with a growing pause."""

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

MISCONFIGURED = 2
HEALTHY_S = 30.0
GRACE_S = 8.0
FIRST_STARTS = 5
STDERR = 2
"""A child only talks: its parent's stdout is for results."""


@dataclass(slots=True)
class Child:
    """`anabranch <arguments>` with the end of a pipe as its stdin, so that it stops when this process is gone, however that came about."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    output: IO[bytes] | None
    started: Callable[[], None]
    first_pause_s: float = 0.5
    most_pause_s: float = 15.0
    settled: bool = False
    process: Process | None = None

    async def keep(self) -> None:
        """Until cancelled. Before it is `settled` it raises FatalError: with code MISCONFIGURED when the child says that starting again is of no use,
        or when it keeps ending. Afterwards it is always started again: what else runs should go on."""
        pause = self.first_pause_s
        starts = 0
        while True:
            lived, code = await self._once()
            starts += 1
            if not self.settled:
                self._give_up(code, starts)
            pause = self.first_pause_s if lived > HEALTHY_S else min(self.most_pause_s, pause * 2)
            log.error("process ended: starting it again", process=self.name, exit_code=code, pause_s=pause)
            await asyncio.sleep(pause)

    def _give_up(self, code: int, starts: int) -> None:
        if code == MISCONFIGURED:
            raise FatalError(f"{self.name} cannot start as configured; its own message is {self._said()}", code="MISCONFIGURED")
        if starts >= FIRST_STARTS:
            raise FatalError(f"{self.name} ended {starts} times before it was ready; its own messages are {self._said()}", code="KEEPS_ENDING")

    def _said(self) -> str:
        return "above" if self.output is None else f"at the end of {self.output.name}"

    async def _once(self) -> tuple[float, int]:
        """How long it lived, and its exit code."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.started()
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "anabranch", *self.arguments),
            stdin=PIPE,
            stdout=STDERR if self.output is None else self.output,
            stderr=self.output,
            env=dict(self.environment),
            start_new_session=True,
        )
        code = await self.process.wait()
        return loop.time() - began, code

    async def stop(self) -> None:
        """Ask, wait, insist."""
        if self.process is None or self.process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self.process.wait()
        except TimeoutError:
            log.warning("process does not stop: killing it", process=self.name)
            self.kill()
            await self.process.wait()

    def kill(self) -> None:
        """Kill the process where it still runs."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
