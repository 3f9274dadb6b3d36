"""One system, one fresh database and folder: run the adapter, and compare its rows."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from benchmarks.peers.systems import NO_TELEMETRY, PROJECT, System
from benchmarks.peers.workload import (
    CALLS_VARIABLE,
    compute_expected_chunks,
    compute_vector,
    write_files,
)
from benchmarks.processes import measure_tree_cpu, measure_tree_mb
from sql.embedded.server import EmbeddedPostgres

TIMEOUT_S = 600.0
ROW_VERSIONS = "select doc, chunk_no, xmin::text as version from {table}"
ROWS = "select doc, chunk_no, txt, (embedding::real[])[1:4] as head from {table}"
COUNTERS = """
select
  coalesce(sum(n_tup_ins), 0)::bigint as inserted,
  coalesce(sum(n_tup_upd), 0)::bigint as updated,
  coalesce(sum(n_tup_del), 0)::bigint as deleted,
  pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as wal_bytes
from pg_stat_user_tables
"""
STATISTICS_DELAY_S = 0.3
"""An ended session's counters may appear later."""


class Database:
    """A synchronous connection. A missing table has no rows: an adapter creates it."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(asyncpg.connect(dsn))

    def fetch(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        with suppress(asyncpg.UndefinedTableError):
            rows: list[asyncpg.Record] = self._runner.run(
                self._connection.fetch(query, *parameters)
            )
            return rows
        return []

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


@dataclass
class Trial:
    """`counters` are totals since the database was created."""

    system: System
    server: EmbeddedPostgres
    database: Database
    dsn: str
    folder: Path
    names: list[str] = field(default_factory=list)

    @property
    def docs(self) -> Path:
        return self.folder / "docs"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def _calls(self) -> Path:
        return self.folder / "calls"

    def fetch(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        """Run a query in which {table} is the system's table."""
        return self.database.fetch(query.format(table=self.system.table), *parameters)

    def count_rows(self) -> int:
        rows = self.fetch("select count(*) as n from {table}")
        return int(rows[0]["n"]) if rows else 0

    def fetch_row_versions(self) -> dict[tuple[str, int], str]:
        return {(row["doc"], row["chunk_no"]): row["version"] for row in self.fetch(ROW_VERSIONS)}

    def count_embedded(self) -> int:
        """Return the number of texts that the embedder got."""
        return sum(map(int, self._calls.read_text().split())) if self._calls.exists() else 0

    def measure_postgres_cpu(self) -> float:
        pid_file = self.server.data / "postmaster.pid"
        return measure_tree_cpu(int(pid_file.read_text().splitlines()[0]))

    def start(self, mode: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **NO_TELEMETRY, CALLS_VARIABLE: str(self._calls)}
        options = ["--docs", self.docs, "--dsn", self.dsn, "--state", self.state, "--mode", mode]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                self.system.build_command(*map(str, options)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "PYTHONPATH": str(PROJECT)},
                cwd=self.folder,
                start_new_session=True,
            )

    def read_log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def run_once(self) -> dict[str, Any]:
        """Run the adapter until the rows follow the folder, and return costs and comparison."""
        before, embedded = self._read_counters(), self.count_embedded()
        postgres_cpu, cpu = self.measure_postgres_cpu(), _measure_children_cpu()
        started = time.perf_counter()
        process = self.start("once")
        with watch_memory(process.pid) as peak_mb:
            try:
                code = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                code = kill(process)
        seconds = time.perf_counter() - started
        # Before the comparison, which costs Postgres CPU, too.
        postgres_cpu = self.measure_postgres_cpu() - postgres_cpu
        if code:
            raise RuntimeError(f"{self.system.name}: exit code {code}\n{self.read_log()}")
        return {
            "seconds": round(seconds, 3),
            "cpu_s": round(_measure_children_cpu() - cpu, 2),
            "postgres_cpu_s": round(postgres_cpu, 2),
            "peak_mb": round(max(peak_mb)),
            "embedded": self.count_embedded() - embedded,
            **{name: value - before[name] for name, value in self._read_counters().items()},
            **self.compare_rows(),
        }

    def compare_rows(self) -> dict[str, int]:
        """Compare each row with the files: text, and the first dimensions of its vector."""
        expected = compute_expected_chunks(self.docs)
        seen: set[tuple[str, int]] = set()
        duplicates = extra = wrong = 0
        for row in self.fetch(ROWS):
            key = (row["doc"], row["chunk_no"])
            if key in seen:
                duplicates += 1
            elif key not in expected:
                extra += 1
            elif row["txt"] != expected[key] or not np.allclose(
                row["head"], compute_vector(row["txt"])[:4], atol=self.system.tolerance
            ):
                wrong += 1
            seen.add(key)
        missing = len(expected.keys() - seen)
        return {
            "expected": len(expected),
            "missing": missing,
            "duplicates": duplicates,
            "extra": extra,
            "wrong": wrong,
        }

    def measure_state_mb(self) -> float:
        files = [path for path in self.state.rglob("*") if path.is_file()]
        return round(sum(path.stat().st_blocks * 512 for path in files) / 2**20, 1)

    def _read_counters(self) -> dict[str, int]:
        time.sleep(STATISTICS_DELAY_S)
        return dict(self.fetch(COUNTERS)[0])


@contextmanager
def open_trial(
    system: System, server: EmbeddedPostgres, folder: Path, texts: Mapping[str, str]
) -> Iterator[Trial]:
    """Create database and folder, and drop both at the end."""
    admin = Database(server.superuser_dsn)
    admin.fetch("drop database if exists peer with (force)")
    # From template0: the embedded server's template1 has Anabranch's extensions.
    admin.fetch("create database peer template template0")
    dsn = server.superuser_dsn.replace("@/postgres?", "@/peer?")
    trial = Trial(system, server, Database(dsn), dsn, folder, sorted(texts))
    trial.state.mkdir(parents=True)
    write_files(trial.docs, texts)
    try:
        yield trial
    finally:
        trial.database.close()
        admin.fetch("drop database peer with (force)")
        admin.close()
        shutil.rmtree(folder)


def kill(process: subprocess.Popen[bytes]) -> int:
    """Kill the process and its children with SIGKILL, and return the exit code."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], *, poll_s: float = 0.005
) -> float:
    """Return the seconds until the condition held. Raises RuntimeError if it never does."""
    started = time.perf_counter()
    while not condition():
        if process.poll() is not None:
            raise RuntimeError(f"The process ended with exit code {process.returncode}.")
        if time.perf_counter() - started > TIMEOUT_S:
            raise RuntimeError(f"Timed out after {TIMEOUT_S:.0f} s.")
        time.sleep(poll_s)
    return time.perf_counter() - started


@contextmanager
def watch_memory(pid: int) -> Iterator[Sequence[float]]:
    """Sample the memory of a process tree in MiB until the end of the block."""
    samples, ended = [measure_tree_mb(pid)], threading.Event()

    def sample() -> None:
        while not ended.wait(0.05):
            samples.append(measure_tree_mb(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _measure_children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
