"""Stop the embedded Postgres when the process that started it ends, however it ends.

The guardian reads a pipe, which the kernel closes even after a SIGKILL of the owner.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from sql.embedded.server import EmbeddedPostgres

STOPPED_BYTE = b"."
"""Written to the pipe after the owner has stopped the server itself."""


@contextmanager
def guard_server(server: EmbeddedPostgres) -> Iterator[None]:
    """Own the server and stop it on exit, unless another process has become the owner."""
    owner = uuid4().hex
    server.set_owner(owner)
    # -P: modules in the working directory must not shadow ours. start_new_session: the terminal's
    # signals must not reach the guardian.
    command = [sys.executable, "-P", "-m", "sql.embedded.guardian", str(server.root), owner]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        bufsize=0,
    ) as guardian:
        try:
            yield
        finally:
            # Stopped before the byte is written: the guardian takes over if this is interrupted.
            server.stop(owner)
            assert guardian.stdin is not None
            with suppress(BrokenPipeError):  # the guardian was killed
                guardian.stdin.write(STOPPED_BYTE)


def main(root: str, owner: str) -> None:
    """Wait until stdin is closed, then stop the server in `root` if `owner` still owns it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # It must outlive its owner, also if a supervisor signals all processes of a service.
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1) == STOPPED_BYTE:
        return
    # Imported late: the guardian waits for hours and should use little memory meanwhile.
    from sql.embedded.server import EmbeddedPostgres

    # A temporary folder may be deleted by now.
    if Path(root).exists():
        EmbeddedPostgres(Path(root)).stop(owner)


if __name__ == "__main__":
    main(*sys.argv[1:])
