"""Hint on how to resume, printed when a wait is interrupted or the server becomes unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anabranch.cli.output import print_stderr
from schemas.errors import TransientError

CONTINUES_WHILE_RUNNING = "continues while `anabranch up` or a worker runs"


@contextmanager
def resume_hint(format_hint: Callable[[], str], *, quiet: bool = False) -> Iterator[None]:
    """Print the hint if the block is cancelled or the server becomes unreachable."""
    try:
        yield
    except (TransientError, asyncio.CancelledError):
        print_stderr(format_hint(), quiet=quiet)
        raise
