"""Parser children that all systems in a test process use, one after another.

A child costs half a second of CPU to start, and most tests have it read one page. The fixtures
apply to the tests below the conftest.py that imports them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import engines.parse.local
from engines.sandbox import Sandbox, SandboxLimits

SandboxKey = tuple[int, SandboxLimits, tuple[str, ...], Callable[[], object] | None]


class SandboxThread:
    """Runs sandboxes in an event loop of its own, which outlives the loops of the tests."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._sandboxes: dict[SandboxKey, Sandbox] = {}

    async def call(self, key: SandboxKey, method: str, *args: Any, **kw: Any) -> Any:
        """Call `method` of the sandbox of `key`. If the caller is canceled, so is the job."""

        async def run() -> Any:
            if key not in self._sandboxes:
                self._sandboxes[key] = Sandbox(*key)
            return await getattr(self._sandboxes[key], method)(*args, **kw)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._loop))

    def close(self) -> None:
        async def close_all() -> None:
            for sandbox in self._sandboxes.values():
                await sandbox.aclose()

        asyncio.run_coroutine_threadsafe(close_all(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture(scope="session")
def sandbox_thread() -> Iterator[SandboxThread]:
    thread = SandboxThread()
    yield thread
    thread.close()


@pytest.fixture(autouse=True, scope="module")
def shared_sandbox(sandbox_thread: SandboxThread) -> Iterator[None]:
    """Let parsers of this process use children that earlier tests left warm."""

    class SharedSandbox:
        def __init__(
            self,
            workers: int = 1,
            limits: SandboxLimits = SandboxLimits(),  # noqa: B008
            modules: tuple[str, ...] = (),
            prepare: Callable[[], object] | None = None,
        ) -> None:
            self._key = (workers, limits, modules, prepare)

        async def run(self, *args: Any, **kw: Any) -> bytes:
            return bytes(await sandbox_thread.call(self._key, "run", *args, **kw))

        async def warm(self) -> None:
            """Do nothing: the first job of a process starts the child."""

        async def aclose(self) -> None:
            """Leave the children to the next test."""

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engines.parse.local, "Sandbox", SharedSandbox)
        yield
