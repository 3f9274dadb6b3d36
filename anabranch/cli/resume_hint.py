"""Commands that wait for a server: where it goes away, or somebody interrupts the wait, it is told what goes on and how to come back to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anabranch.cli.output import print_stderr
from schemas.errors import TransientError

CONTINUES_WHILE_RUNNING = "goes on while `anabranch up`, or a worker, runs"


@contextmanager
def resume_hint(format_hint: Callable[[], str], *, quiet: bool = False) -> Iterator[None]:
    """Asks `how` only then."""
    try:
        yield
    except (TransientError, asyncio.CancelledError):
        print_stderr(format_hint(), quiet=quiet)
        raise
