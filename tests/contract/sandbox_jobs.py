"""Jobs that do to their process what a hostile document might do."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from pathlib import Path

from schemas.errors import UnreadableDocument


def echo(data: bytes) -> bytes:
    return data


def report_pid(_: bytes = b"") -> bytes:
    return str(os.getpid()).encode()


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
