"""Main program of a sandbox child: runs one job at a time until the parent closes the socket.

A frame is a kind (one byte), a length (eight bytes, big endian) and a body. Jobs arrive as pickles
from the trusted parent. Replies are plain bytes or JSON, because a hostile document may control
this process. A job's file arrives as an open descriptor: the child cannot open files itself.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import socket
import struct
import sys
import traceback
from collections.abc import Callable

from engines.confinement import confine, limit_cpu_time
from schemas.errors import AnabranchError

FRAME = struct.Struct(">cQ")
READY, RESULT, REFUSED, FAILED = b"+", b"r", b"e", b"x"
DESCRIPTOR_PATH = "/proc/self/fd/{}"
"""Path at which a job opens a descriptor that was passed with it."""


def main() -> None:
    channel, parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    modules = sys.argv[4:]
    _limit_memory(memory_bytes)
    # Before the imports below, so that no parser runs unconfined.
    measures = confine(
        sorted({module.partition(".")[0] for module in modules} | {"engines", "schemas"})
    )
    if os.getppid() != parent:
        sys.exit(1)  # the parent ended before `confine` set the death signal
    for module in modules:
        importlib.import_module(module)
    with socket.socket(fileno=channel) as connection:
        _send_frame(connection, READY, json.dumps(measures).encode())
        while True:
            # The file's descriptor arrives with the first byte of a frame.
            first_byte, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
            if not first_byte:
                break
            _, size = FRAME.unpack(first_byte + _receive(connection, FRAME.size - 1))
            # Trusted: only the parent writes to this socket.
            function, arguments, deadline_s = pickle.loads(_receive(connection, size))
            # Enforced by the kernel, in case the parent cannot enforce its deadline.
            limit_cpu_time(deadline_s)
            _send_frame(
                connection,
                *_run_job(
                    function,
                    (
                        *(DESCRIPTOR_PATH.format(descriptor) for descriptor in descriptors),
                        *arguments,
                    ),
                ),
            )
            # The child serves many jobs, and its open files are limited.
            for descriptor in descriptors:
                os.close(descriptor)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(min(size - len(received), 2**20))
        if not chunk:
            sys.exit(0)
        received += chunk
    return bytes(received)


def _run_job(function: Callable[..., bytes], arguments: tuple[object, ...]) -> tuple[bytes, bytes]:
    try:
        return RESULT, function(*arguments)
    except AnabranchError as error:
        kind = type(error)
        return REFUSED, json.dumps(
            [kind.__module__, kind.__name__, error.detail, error.code, error.remedy]
        ).encode()
    except Exception as error:
        name = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        innermost_frame = next(
            (frame for frame in reversed(frames) if f"{os.sep}engines{os.sep}" in frame.filename),
            frames[-1],
        )
        file_name = os.path.basename(innermost_frame.filename)  # noqa: PTH119
        return FAILED, json.dumps(
            [name, str(error)[:500], f"{file_name}:{innermost_frame.lineno}"]
        ).encode()


def _send_frame(connection: socket.socket, kind: bytes, body: bytes) -> None:
    connection.sendall(FRAME.pack(kind, len(body)))
    connection.sendall(body)


def _limit_memory(memory_bytes: int) -> None:
    import resource

    # The parent polls the actual limit. This higher one stops a huge allocation between two polls.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(
        resource.RLIMIT_DATA, (memory_bytes + memory_bytes // 2, memory_bytes + memory_bytes // 2)
    )


if __name__ == "__main__":
    main()
