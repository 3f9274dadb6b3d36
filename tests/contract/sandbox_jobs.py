"""Jobs that do to their process what a hostile document might do."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import time
from pathlib import Path

from engines.sandbox_child import FRAME
from schemas.errors import UnreadableDocument


def echo(data: bytes) -> bytes:
    return data


def report_pid(_: bytes = b"") -> bytes:
    return str(os.getpid()).encode()


_GLOBAL: list[bytes] = []


def read_global() -> bytes:
    return b"".join(_GLOBAL)


def patch_readers() -> bytes:
    """Replace functions that the next job would call, and keep data for it."""
    from engines import sandbox_child

    def forge(*_: object) -> tuple[bytes, bytes]:
        return sandbox_child.RESULT, b"forged"

    sandbox_child._run_job = forge
    globals()["echo"] = lambda data: b"forged"
    _GLOBAL.append(b"of this tenant")
    return b"patched"


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _list_sockets() -> list[int]:
    """List the sockets of this process without /proc, as injected code would."""
    return [descriptor for descriptor in range(3, 256) if _is_socket(descriptor)]


def count_sockets() -> bytes:
    return str(len(_list_sockets())).encode()


def send_frame(kind: bytes, size: int, body: bytes) -> bytes:
    """Announce a reply of `size` bytes, send `body` again and again until it is complete."""
    with socket.socket(fileno=_list_sockets()[0]) as connection:
        connection.sendall(FRAME.pack(kind, size))
        sent = 0
        while sent < size or sent == 0:
            connection.sendall(body)
            sent += max(1, len(body))
        time.sleep(3600)
    return b""


def close_socket_and_hang() -> bytes:
    os.close(_list_sockets()[0])
    return hang()


def make_result(size: int) -> bytes:
    return bytes(size)


def write_parent_memory() -> bytes:
    with Path(f"/proc/{os.getppid()}/mem").open("r+b"):
        return b"opened"


def list_parent_descriptors() -> bytes:
    return repr(list(Path(f"/proc/{os.getppid()}/fd").iterdir())).encode()


def kill_parent() -> bytes:
    os.kill(os.getppid(), signal.SIGKILL)
    return b"killed"


def read_environment(name: str) -> bytes:
    return os.environ.get(name, "").encode()


def hang() -> bytes:
    time.sleep(3600)
    return b""


def allocate(size: int) -> bytes:
    return bytes(bytearray(size)[:1])


def segfault() -> bytes:
    os.kill(os.getpid(), signal.SIGSEGV)
    return b""


def kill_self(signal_number: int) -> bytes:
    os.kill(os.getpid(), signal_number)
    time.sleep(3600)
    return b""


def print_much() -> bytes:
    print("x" * 100_000)
    return b"done"


def raise_unreadable() -> bytes:
    raise UnreadableDocument("page 3 is torn", code="TORN", remedy="Mend it.")


def raise_unexpected() -> bytes:
    raise ValueError("unforeseen")


def read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def write_file(path: str) -> bytes:
    Path(path).write_bytes(b"x")
    return b"written"


def connect(host: str, port: int) -> bytes:
    with socket.create_connection((host, port), timeout=5):
        return b"connected"


def connect_by_syscall(host: str, port: int) -> bytes:
    """Connect by system call numbers, without Python's socket module, as injected code would."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.socket(2, 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "socket")
    return b"connected"


def run_program() -> bytes:
    import subprocess

    return subprocess.run(["/bin/echo", "ran"], capture_output=True, check=True).stdout


def fork() -> bytes:
    if os.fork() == 0:
        os._exit(0)
    return b"forked"


def signal_parent() -> bytes:
    os.kill(os.getppid(), 0)
    return b"may signal"


def create_namespace() -> bytes:
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return b"unshared"


def start_threads(count: int) -> bytes:
    import threading

    threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return b"done"


def report_identity() -> bytes:
    status = dict(
        line.split(":", 1)
        for line in read_file("/proc/self/status").decode().splitlines()
        if ":" in line
    )
    wanted = ("Uid", "CapEff", "NoNewPrivs", "Seccomp")
    return repr(
        {name: status[name].split() for name in wanted} | {"environment": sorted(os.environ)}
    ).encode()


def burn_cpu() -> bytes:
    while True:
        pass
