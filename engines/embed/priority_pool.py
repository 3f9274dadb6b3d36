"""Thread pool with priorities for blocking work."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Task = tuple[float, int, "Future[Any] | None", Callable[[], Any]]


class PriorityThreadPool:
    """Runs work in `threads` threads, the lowest `priority` first.

    Equal priorities run in order of arrival. Work that was canceled while waiting does not start.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._queue: queue.PriorityQueue[_Task] = queue.PriorityQueue()
        self._sequence = itertools.count()
        self._threads = [
            threading.Thread(target=self._process_queue, name=f"{name}-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        atexit.register(self.close)

    async def run(self, work: Callable[[], T], priority: float = 0.0) -> T:
        return await asyncio.wrap_future(self.submit(work, priority))

    def submit(self, work: Callable[[], T], priority: float = 0.0) -> Future[T]:
        future: Future[T] = Future()
        # The sequence number breaks ties, since futures cannot be compared.
        self._queue.put((priority, next(self._sequence), future, work))
        return future

    def close(self) -> None:
        """Wait for running work and cancel the rest."""
        # Also registered with atexit: native code that runs while the interpreter exits crashes it.
        atexit.unregister(self.close)
        for _ in self._threads:
            # Ends one thread, ahead of all waiting work.
            self._queue.put((float("-inf"), next(self._sequence), None, lambda: None))
        for thread in self._threads:
            thread.join()
        while not self._queue.empty():
            if (pending_future := self._queue.get()[2]) is not None:
                pending_future.cancel()

    def _process_queue(self) -> None:
        while True:
            _, _, future, work = self._queue.get()
            if future is None:
                return
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
