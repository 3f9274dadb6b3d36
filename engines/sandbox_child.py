"""The child's side of the sandbox: one job at a time from a socket, until the parent goes away.

A frame is a kind (one byte), a length (eight bytes, big endian) and a body. Jobs come as pickles from our own parent; answers go back as
plain bytes or JSON, because a hostile document may have taken this process over.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable

from schemas.errors import AnabranchError

FRAME = struct.Struct(">cQ")
READY, RESULT, REFUSED, FAILED = b"+", b"r", b"e", b"x"
_PR_SET_PDEATHSIG = 1


def main() -> None:
    channel, parent, memory = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    _die_with(parent)
    _limit(memory)
    for module in sys.argv[4:]:
        importlib.import_module(module)
    with socket.socket(fileno=channel) as connection, connection.makefile("rwb") as stream:
        _answer(stream.write, READY, b"")
        stream.flush()
        while header := stream.read(FRAME.size):
            _, size = FRAME.unpack(header)
            function, arguments = pickle.loads(stream.read(size))
            _answer(stream.write, *_outcome(function, arguments))
            stream.flush()


def _outcome(function: Callable[..., bytes], arguments: tuple[object, ...]) -> tuple[bytes, bytes]:
    try:
        return RESULT, function(*arguments)
    except AnabranchError as error:
        kind = type(error)
        return REFUSED, json.dumps([kind.__module__, kind.__name__, error.detail, error.code, error.remedy]).encode()
    except Exception as error:
        name = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        place = next((frame for frame in reversed(frames) if f"{os.sep}engines{os.sep}" in frame.filename), frames[-1])
        return FAILED, json.dumps([name, str(error)[:500], f"{os.path.basename(place.filename)}:{place.lineno}"]).encode()  # noqa: PTH119


def _answer(write: Callable[[bytes], object], kind: bytes, body: bytes) -> None:
    write(FRAME.pack(kind, len(body)))
    write(body)


def _die_with(parent: int) -> None:
    """Linux sends SIGKILL when the parent's thread ends; elsewhere the closed socket ends the loop between jobs."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _limit(memory: int) -> None:
    """A hard stop half as high again as the limit that the parent watches: one huge allocation must not outrun the watch."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory + memory // 2, memory + memory // 2))


if __name__ == "__main__":
    main()
