"""A connection gives its priority to a Postgres process only."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import cast

import asyncpg
import pytest

from sql import database

# A lower priority, which every account may set.
LOWER = min(os.getpriority(os.PRIO_PROCESS, 0) + 3, 19)


@pytest.fixture(autouse=True)
def priority(monkeypatch: pytest.MonkeyPatch) -> None:
    async def prepare(connection: asyncpg.Connection) -> None:
        pass

    getpriority = os.getpriority
    monkeypatch.setattr(database, "prepare_connection", prepare)
    monkeypatch.setattr(
        os, "getpriority", lambda which, pid: getpriority(which, pid) if pid else LOWER
    )


class Connection:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def get_server_pid(self) -> int:
        return self.pid


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("name", "expected"), [("postgres", LOWER), ("other", None)])
async def test_priority_is_set_for_postgres_only(name: str, expected: int | None) -> None:
    # The shell names itself, as `comm` shows.
    script = f"printf {name} > /proc/$$/comm; echo; read line"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout and process.stdout.readline()
        before = os.getpriority(os.PRIO_PROCESS, process.pid)
        await database.prepare_local_connection(cast(asyncpg.Connection, Connection(process.pid)))
        after = os.getpriority(os.PRIO_PROCESS, process.pid)
        process.stdin.close()
    assert after == (expected or before)


async def test_ended_server_process_is_ignored() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    await database.prepare_local_connection(cast(asyncpg.Connection, Connection(process.pid)))
