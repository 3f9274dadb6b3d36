"""Entry point of the program `anabranch`."""

from __future__ import annotations

import gc
import os
import signal

GC_THRESHOLDS = (50_000, 20, 100)


def program() -> None:
    """Run one command, and leave at once when it is done.

    Taking native threads apart at exit is slow, and at times fatal.
    """
    # Until the command runs there is nothing to stop, and an import shows where it was interrupted.
    signal.signal(signal.SIGINT, _exit_at_once)
    from anabranch.cli import main
    from anabranch.process.shutdown import exit_process

    prepare_process()
    exit_process(main())


def prepare_process() -> None:
    """Set up garbage collection and signals."""
    from anabranch.process.shutdown import list_stop_signals

    # The commands import modules with hundreds of thousands of objects that live as long as the
    # process. The default thresholds walk them dozens of times, a tenth of the time to start.
    gc.set_threshold(*GC_THRESHOLDS)
    # A script's background job inherits SIGINT as ignored. raise_signal() would then do nothing,
    # and SIGTERM would be lost.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in list_stop_signals():
        if number != signal.SIGINT:
            signal.signal(number, _stop)


def _stop(number: int, _frame: object) -> None:
    """Stop as Ctrl-C does: a command that started a server stops it before it ends."""
    # Before asyncio.run() takes SIGINT over, nothing is to be stopped, and native code that imports
    # a module may lose a KeyboardInterrupt.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _exit_at_once(number, _frame)
    signal.raise_signal(signal.SIGINT)


def _exit_at_once(number: int, _frame: object) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    program()
