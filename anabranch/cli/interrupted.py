"""Commands that wait for a server: where it goes away, or somebody interrupts the wait, it is told what goes on and how to come back to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anabranch.cli.output import say
from schemas.errors import TransientError

GOES_ON = "goes on while `anabranch up`, or a worker, runs"


@contextmanager
def going_on(how: Callable[[], str], *, quiet: bool = False) -> Iterator[None]:
    """Asks `how` only then."""
    try:
        yield
    except (TransientError, asyncio.CancelledError):
        say(how(), quiet=quiet)
        raise
