"""Jobs for the sandbox's tests: each does to its process what a hostile document might."""

from __future__ import annotations

import os
import signal
import time

from schemas.errors import UnreadableDocument


def echo(data: bytes) -> bytes:
    return data


def process(_: bytes = b"") -> bytes:
    return str(os.getpid()).encode()


def surroundings(name: str) -> bytes:
    return os.environ.get(name, "").encode()


def hang() -> bytes:
    time.sleep(3600)
    return b""


def swallow(size: int) -> bytes:
    return bytes(bytearray(size)[:1])


def end_abruptly() -> bytes:
    os.kill(os.getpid(), signal.SIGSEGV)
    return b""


def be_killed(how: int) -> bytes:
    os.kill(os.getpid(), how)
    time.sleep(3600)
    return b""


def print_loudly() -> bytes:
    print("x" * 100_000)
    return b"done"


def refuse() -> bytes:
    raise UnreadableDocument("page 3 is torn", code="TORN", remedy="Mend it.")


def stumble() -> bytes:
    raise ValueError("unforeseen")
