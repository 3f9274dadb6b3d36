"""Main program of a sandbox child: forks a confined process for each job of its parent.

The child itself imports modules and never touches a document, so that a document cannot change
what reads the next one. A frame is a kind (one byte), a length (eight bytes, big endian) and a
body. Jobs arrive as pickles from the trusted parent. Replies are plain bytes or JSON, because a
hostile document may control the process that sends them. A job's file arrives as an open
descriptor: the process cannot open files itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pickle
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from engines.confinement import confine_job, drop_privileges, limit_cpu_time
from schemas.errors import AnabranchError, LimitExceeded

FRAME = struct.Struct(">cQ")
READY, JOB, RESULT, REFUSED, FAILED = b"+", b"j", b"r", b"e", b"x"
FORK, WAIT = b"f", b"w"
"""Requests of the parent: fork a process that serves the passed socket; wait for its end."""
NUMBER = struct.Struct(">i")
"""Reply to `FORK`: the process id. Reply to `WAIT`: the exit code, as of `subprocess`."""
MAX_RESULT_BYTES = 256 * 2**20
MAX_MESSAGE_BYTES = 64 * 2**10
MAX_DETAIL_LENGTH = 2_000
DESCRIPTOR_PATH = "/proc/self/fd/{}"
"""Path at which a job opens a descriptor that was passed with it."""


def main() -> None:
    channel, parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    modules = sys.argv[4:]
    _limit_memory(memory_bytes)
    measures = drop_privileges()
    if os.getppid() != parent:
        sys.exit(1)  # the parent ended before `drop_privileges` set the death signal
    for module in modules:
        importlib.import_module(module)
    packages = sorted({module.partition(".")[0] for module in modules} | {"engines", "schemas"})
    with socket.socket(fileno=channel) as connection:
        prepare = pickle.loads(_receive_frame(connection))
        if prepare is not None:
            prepare()
        # A collection in a job would write to every object, and so copy the shared pages.
        gc.freeze()
        _send_frame(connection, READY, b"")
        _serve_forks(connection, packages, measures)


def _serve_forks(
    connection: socket.socket, packages: Sequence[str], measures: dict[str, str]
) -> None:
    pid, own_pid = 0, os.getpid()
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if not request:
            return
        if request == WAIT:
            # Only now, so that the parent cannot signal another process with the same number.
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.sendall(NUMBER.pack(code))
            continue
        pid = os.fork()
        if pid == 0:
            # Closed: by this socket a job could name any process to the parent, which kills it.
            connection.close()
            _serve_job(descriptors[0], own_pid, packages, measures)
        os.close(descriptors[0])
        connection.sendall(NUMBER.pack(pid))


def _serve_job(
    channel: int, child_pid: int, packages: Sequence[str], measures: dict[str, str]
) -> NoReturn:
    try:
        measures = measures | confine_job(packages)
        if os.getppid() != child_pid:
            os._exit(1)  # the child ended before `confine_job` set the death signal
        with socket.socket(fileno=channel) as connection:
            _send_frame(connection, READY, json.dumps(measures).encode())
            # The file's descriptor arrives with the first byte of the frame.
            first_byte, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
            if first_byte:
                # Trusted: only the parent writes to this socket.
                job = pickle.loads(_receive_frame(connection, first_byte))
                function, arguments, deadline_s = job
                # Enforced by the kernel, in case the parent cannot enforce its deadline.
                limit_cpu_time(deadline_s)
                paths = [DESCRIPTOR_PATH.format(descriptor) for descriptor in descriptors]
                _send_frame(connection, *_run_job(function, (*paths, *arguments)))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        # Never back into the loop of the child.
        os._exit(1)


def _receive_frame(connection: socket.socket, first_byte: bytes = b"") -> bytes:
    header = first_byte + _receive(connection, FRAME.size - len(first_byte))
    return _receive(connection, FRAME.unpack(header)[1])


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
        result = function(*arguments)
        if len(result) > MAX_RESULT_BYTES:
            raise LimitExceeded(
                f"The content takes {len(result) // 2**20} MiB when read, more than "
                f"{MAX_RESULT_BYTES // 2**20} MiB.",
                code="TOO_MUCH_TEXT",
                remedy="Split the document into smaller files.",
            )
        return RESULT, result
    except AnabranchError as error:
        return REFUSED, json.dumps(
            [type(error).__name__, error.detail[:MAX_DETAIL_LENGTH], error.code, error.remedy]
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
