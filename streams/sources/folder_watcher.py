"""Notifications of the operating system about changed files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from watchfiles import watch

log = structlog.get_logger(__name__)
STEP_MS = 5
"""A change is reported once none has followed it for this long, or after MAX_DELAY_MS."""
MAX_DELAY_MS = 20
STOP_CHECK_MS = 200
STOP_TIMEOUT_S = 1.0
MAX_FOLDERS = 5_000
"""Watches are added under Python's global lock, and Linux limits their number per user."""


@dataclass(slots=True)
class FolderChanges:
    """Paths that have changed and were not collected yet."""

    paths: set[str] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, paths: Collection[str]) -> None:
        self.paths.update(paths)
        self._wake.set()

    async def collect(self, timeout_s: float) -> set[str]:
        """Wait for changes. Returns the changed paths, or none after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return set()
        paths, self.paths = self.paths, set()
        self._wake.clear()
        return paths


@asynccontextmanager
async def watch_folders(folders: Collection[Path]) -> AsyncIterator[FolderChanges]:
    """Watch the folders, not those below them.

    Reports each folder when its watch has begun: earlier changes take a scan to be found. Without
    notifications (too many folders, an unsupported file system) nothing is reported.
    """
    changes = FolderChanges()
    if len(folders) > MAX_FOLDERS:
        log.warning("folder_not_watched", folders=len(folders), limit=MAX_FOLDERS)
        yield changes
        return
    stop = threading.Event()
    thread = threading.Thread(
        target=_watch,
        args=(folders, stop, changes, asyncio.get_running_loop()),
        name="folder-watcher",
        daemon=True,
    )
    thread.start()
    try:
        yield changes
    finally:
        stop.set()
        await asyncio.to_thread(thread.join, STOP_TIMEOUT_S)


def _watch(
    folders: Collection[Path],
    stop: threading.Event,
    changes: FolderChanges,
    loop: asyncio.AbstractEventLoop,
) -> None:
    # A thread of its own: one of the pool would be taken for as long as the folder is watched. Not
    # recursive, because the library would follow links out of the folder: 14 s for one to /usr.
    paths = [str(folder) for folder in folders]
    reported = set(paths)
    try:
        for found in watch(
            *paths,
            watch_filter=None,
            recursive=False,
            debounce=MAX_DELAY_MS,
            step=STEP_MS,
            rust_timeout=STOP_CHECK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
            stop_event=stop,
        ):
            reported |= {path for _, path in found}
            if reported and not stop.is_set():
                loop.call_soon_threadsafe(changes.add, reported)
            reported = set()
    except (OSError, RuntimeError) as error:
        if not stop.is_set():
            log.warning("folder_not_watched", folder=paths[0], detail=str(error))
