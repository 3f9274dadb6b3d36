"""Stop a process on SIGTERM, Ctrl-C or SIGHUP; a child also when its parent ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import NoReturn

STOP_TIMEOUT_S = 25.0
SECOND_SIGNAL_TIMEOUT_S = 5.0
"""Time left to the contexts after a second signal."""


async def run_until_stopped(
    work: Coroutine[None, None, None], *, stop_with_parent: bool = False
) -> int:
    """Run `work` until it ends or a stop is requested, and leave its contexts in order; returns the
    exit code, 130 after Ctrl-C. A second SIGINT or SIGTERM cancels what the contexts still wait
    for. With `stop_with_parent`, the end of stdin is a stop request too: a killed parent sends no
    signal. Raises the error of `work`.
    """
    stop = _StopRequest(asyncio.ensure_future(work))
    loop = asyncio.get_running_loop()
    for number in list_stop_signals():
        loop.add_signal_handler(number, stop.request, number)
    if stop_with_parent:
        threading.Thread(target=_wait_for_end_of_stdin, args=(loop, stop), daemon=True).start()
    try:
        await stop.work
    except asyncio.CancelledError:
        if not stop.request_count:
            raise
    except Exception:
        # What was cut short by a second signal fails in many ways.
        if stop.request_count < 2:
            raise
    return 130 if stop.is_interrupted or stop.request_count > 1 else 0


def list_stop_signals() -> list[signal.Signals]:
    """List the stop signals. Under `nohup`, SIGHUP stays ignored."""
    return [
        signal.SIGTERM,
        signal.SIGINT,
        *([signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []),
    ]


class _StopRequest:
    """Count stop requests and cancel the work."""

    def __init__(self, work: asyncio.Future[None]) -> None:
        self.work, self.request_count, self.is_interrupted = work, 0, False

    def request(self, number: signal.Signals = signal.SIGHUP) -> None:
        """Cancel the work, and bound the time that it takes to stop.

        A closed terminal sends SIGHUP twice, from the kernel and from the shell, so only other
        signals count as a second one.
        """
        if self.request_count and number == signal.SIGHUP:
            return
        self.request_count += 1
        self.is_interrupted |= number == signal.SIGINT
        # Cancels what is awaited now: after the first request, that is the clean-up.
        self.work.cancel()
        if self.request_count <= 2:
            # A thread, since the event loop may be blocked.
            threading.Thread(
                target=_exit_after,
                args=(
                    (STOP_TIMEOUT_S, SECOND_SIGNAL_TIMEOUT_S)[self.request_count - 1],
                    130 if self.is_interrupted or self.request_count > 1 else 0,
                ),
                daemon=True,
            ).start()


def read_parent_variables() -> None:
    """Set the environment variables that the parent process sends as a line of JSON on stdin.

    Exits if the parent has ended.
    """
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 65_536)  # unbuffered: the rest of stdin is only watched for its end
        if not data:
            exit_process(0)
        line += data
    os.environ.update(json.loads(line))


def _wait_for_end_of_stdin(loop: asyncio.AbstractEventLoop, stop: _StopRequest) -> None:
    while os.read(0, 1):  # unbuffered: a buffered reader's lock would be fatal at exit
        continue
    if not loop.is_closed():
        loop.call_soon_threadsafe(stop.request)


def _exit_after(timeout_s: float, code: int) -> None:
    """Exit after the timeout. Like a kill, this loses nothing that was acknowledged."""
    time.sleep(timeout_s)
    with suppress(OSError):  # the terminal is closed
        sys.stderr.write(f"not everything stopped in {timeout_s:g} s: leaving it\n")
    exit_process(code)


def exit_process(code: int) -> NoReturn:
    """Exit without interpreter shutdown, which takes seconds with models in memory.

    All contexts are closed already.
    """
    for stream in (sys.stdout, sys.stderr):
        # The reader of the pipe or the terminal may be gone, or the stream closed.
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
