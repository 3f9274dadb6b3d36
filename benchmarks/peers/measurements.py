"""W0 to W6: start, ingest, edit, delete, nothing changed, kill -9, freshness."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import Popen
from typing import Any

from benchmarks.peers.systems import System
from benchmarks.peers.trial import Trial, kill, open_trial, wait_until
from benchmarks.peers.workload import (
    compute_expected_chunks,
    edit_file,
    split_text,
    write_files,
)
from benchmarks.processes import measure_tree_cpu, measure_tree_mb
from sql.embedded.server import EmbeddedPostgres

HNSW = """
create index on {table} using hnsw (embedding vector_cosine_ops)
with (m = 16, ef_construction = 128)
"""
Figures = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    texts: Mapping[str, str]
    """Files of the first ingest."""
    new_texts: Mapping[str, str]
    """Files that are added one by one."""
    changes: int = 20
    """Files to edit, and to delete."""
    repeat: int = 1
    settle_s: float = 3.0
    """Pause after which a live process counts as idle."""
    idle_s: float = 5.0
    kill_at: float = 0.5
    """Share of the rows that exist when an ingest is killed."""

    def pick(self, names: list[str], offset: int) -> list[str]:
        """Pick `changes` names that are spread over the list; other offsets pick other names."""
        step = max(1, len(names) // self.changes)
        return names[offset % step :: step][: self.changes]


@dataclass(frozen=True)
class Measurements:
    """`open` starts a trial with the given files."""

    system: System
    server: EmbeddedPostgres
    folder: Path
    workload: Workload
    numbers: count[int]

    def open(self, texts: Mapping[str, str]) -> Any:
        folder = self.folder / f"{self.system.name}-{next(self.numbers)}"
        return open_trial(self.system, self.server, folder, texts)

    def measure_start(self) -> Figures:
        """Index an empty folder twice, since the first run warms the page cache."""
        runs = []
        for _ in range(2):
            with self.open({}) as trial:
                runs.append(trial.run_once())
        return min(runs, key=lambda run: run["seconds"])

    def measure_ingest(self) -> Figures:
        """Return W1 to W4: the median of the ingests, and the changes after the last one."""
        figures: Figures = {}
        runs: list[Figures] = []
        for number in range(self.workload.repeat):
            with self.open(self.workload.texts) as trial:
                runs.append(trial.run_once() | {"state_mb": trial.measure_state_mb()})
                if number < self.workload.repeat - 1:
                    continue
                if self.system.is_incremental:
                    figures = self._measure_changes(trial)
                else:
                    started = time.perf_counter()
                    trial.fetch(HNSW)
                    figures = {"index": {"seconds": round(time.perf_counter() - started, 3)}}
        seconds = [run["seconds"] for run in runs]
        ingest = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
        return {"ingest": ingest | {"all_seconds": seconds}, **figures}

    def _measure_changes(self, trial: Trial) -> Figures:
        unchanged = trial.run_once()
        needed = edit_files(trial, self.workload.pick(trial.names, 1), "EDITED")
        edit = trial.run_once() | {"needed": needed}
        deleted = self.workload.pick(trial.names, 3)
        needed = sum(len(split_text((trial.docs / name).read_text())) for name in deleted)
        for name in deleted:
            (trial.docs / name).unlink()
        delete = trial.run_once() | {"needed": needed}
        return {"unchanged": unchanged, "edit": edit, "delete": delete}

    def measure_kill(self) -> Figures:
        """Kill an ingest (W5), run it again, and then follow an edit and a deletion."""
        with self.open(self.workload.texts) as trial:
            rows = self.workload.kill_at * len(compute_expected_chunks(trial.docs))
            process = trial.start("once")
            try:
                wait_until(
                    lambda: trial.count_rows() >= rows or process.poll() == 0,
                    process,
                    poll_s=0.02,
                )
            finally:
                kill(process)
            at_kill = {"rows": trial.count_rows(), "embedded": trial.count_embedded()}
            restart = trial.run_once()
            edit_file(trial.docs / trial.names[1], "EDITED")
            (trial.docs / trial.names[0]).unlink()
            return {"at_kill": at_kill, "restart": restart, "after_change": trial.run_once()}

    def measure_live(self) -> Figures:
        """Watch a folder: first ingest, idle cost, edits, deletions, new files (W6), kill -9."""
        with self.open(self.workload.texts) as trial:
            process = trial.start("live")
            try:
                figures = self._measure_watching(trial, process)
                kill(process)
                change_files_while_down(trial)
                process = trial.start("live")
                return figures | {"restart": self._measure_catching_up(trial, process)}
            except RuntimeError as error:
                raise RuntimeError(f"{error}\n{trial.read_log()}") from error
            finally:
                kill(process)

    def _measure_watching(self, trial: Trial, process: Popen[bytes]) -> Figures:
        expected = len(compute_expected_chunks(trial.docs))
        ingest_s = wait_until(lambda: trial.count_rows() >= expected, process, poll_s=0.05)
        time.sleep(self.workload.settle_s)
        idle = self._measure_idle(trial, process)
        return {
            "ingest_s": round(ingest_s, 3),
            "idle": idle,
            "edit": self._measure_live_edit(trial, process),
            "delete": self._measure_live_delete(trial, process),
            "fresh": self._measure_freshness(trial, process),
        }

    def _measure_idle(self, trial: Trial, process: Popen[bytes]) -> Figures:
        cpu, postgres_cpu = measure_tree_cpu(process.pid), trial.measure_postgres_cpu()
        time.sleep(self.workload.idle_s)
        used = (
            measure_tree_cpu(process.pid) - cpu,
            trial.measure_postgres_cpu() - postgres_cpu,
        )
        return {
            "cpu_percent": round(100 * used[0] / self.workload.idle_s, 1),
            "postgres_cpu_percent": round(100 * used[1] / self.workload.idle_s, 1),
            "memory_mb": round(measure_tree_mb(process.pid)),
        }

    def _measure_live_edit(self, trial: Trial, process: Popen[bytes]) -> Figures:
        names = self.workload.pick(trial.names, 1)
        versions, embedded = trial.fetch_row_versions(), trial.count_embedded()
        started = time.perf_counter()
        needed = edit_files(trial, names, "LIVE")
        edited = "select count(distinct doc) as n from {table} where txt like '%LIVE%'"
        wait_until(lambda: trial.fetch(edited)[0]["n"] == len(names), process)
        seconds = time.perf_counter() - started
        time.sleep(self.workload.settle_s)  # a system may rewrite more rows than it has to
        new_versions = trial.fetch_row_versions()
        return {
            "seconds": round(seconds, 3),
            "needed": needed,
            "rewritten": sum(new_versions.get(key) != old for key, old in versions.items()),
            "embedded": trial.count_embedded() - embedded,
            **trial.compare_rows(),
        }

    def _measure_live_delete(self, trial: Trial, process: Popen[bytes]) -> Figures:
        names = self.workload.pick(trial.names, 3)
        started = time.perf_counter()
        for name in names:
            (trial.docs / name).unlink()
        remaining = "select count(*) as n from {table} where doc = any($1)"
        wait_until(lambda: trial.fetch(remaining, names)[0]["n"] == 0, process)
        return {"seconds": round(time.perf_counter() - started, 3), **trial.compare_rows()}

    def _measure_freshness(self, trial: Trial, process: Popen[bytes]) -> Figures:
        milliseconds = []
        for number, (name, text) in enumerate(self.workload.new_texts.items()):
            write_files(trial.folder / "new", {name: text})
            # Varied, so that arrivals do not keep step with a system's scans.
            time.sleep(0.2 + 0.037 * number)
            started = time.perf_counter()
            (trial.folder / "new" / name).replace(trial.docs / name)
            wait_until(count_is(trial, name, len(split_text(text))), process, poll_s=0.002)
            milliseconds.append(1000 * (time.perf_counter() - started))
        return {
            "files": len(milliseconds),
            "p50_ms": round(statistics.median(milliseconds), 1),
            "p95_ms": round(sorted(milliseconds)[math.ceil(0.95 * len(milliseconds)) - 1], 1),
            **trial.compare_rows(),
        }

    def _measure_catching_up(self, trial: Trial, process: Popen[bytes]) -> Figures:
        embedded = trial.count_embedded()
        query = (
            "select count(*) filter (where doc = $1 and txt like '%DOWN%') > 0 "
            "and count(*) filter (where doc = $2) = 0 as is_current from {table}"
        )
        names = trial.names[1], trial.names[2]
        seconds = wait_until(lambda: bool(trial.fetch(query, *names)[0]["is_current"]), process)
        time.sleep(self.workload.settle_s)
        return {
            "seconds": round(seconds, 3),
            "embedded": trial.count_embedded() - embedded,
            **trial.compare_rows(),
        }


def change_files_while_down(trial: Trial) -> None:
    edit_file(trial.docs / trial.names[1], "DOWN")
    (trial.docs / trial.names[2]).unlink()


def edit_files(trial: Trial, names: list[str], marker: str) -> int:
    """Edit the files, and return the number of chunks that changed."""
    before = compute_expected_chunks(trial.docs)
    for number, name in enumerate(names):
        edit_file(trial.docs / name, f"{marker}{number}")
    after = compute_expected_chunks(trial.docs)
    return sum(before.get(key) != text for key, text in after.items())


def count_is(trial: Trial, name: str, chunks: int) -> Callable[[], bool]:
    query = "select count(*) as n from {table} where doc = $1"
    return lambda: bool(trial.fetch(query, name)[0]["n"] == chunks)
