"""When a process of ours should stop: on SIGTERM, on Ctrl-C, and, for a child, when its parent is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import NoReturn

PATIENCE_S = 25.0


def stop_event(*, with_parent: bool = False) -> asyncio.Event:
    """Set when it is time. A second signal ends the process at once. With `with_parent` the end of stdin counts too: a killed parent cannot say more."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, stop)
    if with_parent:
        threading.Thread(target=_wait_for_end_of_stdin, args=(loop, stop), daemon=True).start()
    return stop


def _signalled(stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(130)
    stop.set()


def _wait_for_end_of_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(0, 1):  # unbuffered: a buffered reader's lock would be fatal at exit
        continue
    if not loop.is_closed():
        loop.call_soon_threadsafe(stop.set)


def _insist() -> None:
    """Whatever does not let go by then is left behind: no more is lost than by a kill, which is nothing that was acknowledged."""
    time.sleep(PATIENCE_S)
    sys.stderr.write(f"not everything stopped in {PATIENCE_S:g} s: leaving it\n")
    leave(0)


def leave(code: int) -> NoReturn:
    """End the process now that all its contexts were left. Taking the interpreter apart, with models in it, would take as long as everything else."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError, ValueError):  # whoever read it is gone, or it is closed
            stream.flush()
    os._exit(code)


async def until_stopped(work: Coroutine[None, None, None], *, with_parent: bool = False) -> int:
    """Run `work` until it ends or it is time to stop; in either case its contexts are left in order. Raises what `work` raises; returns the exit code."""
    stop = asyncio.create_task(stop_event(with_parent=with_parent).wait())
    task = asyncio.create_task(work)
    await asyncio.wait({stop, task}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    stopped = not task.done() and task.cancel()
    if stopped:
        threading.Thread(target=_insist, daemon=True).start()
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
    return 0
