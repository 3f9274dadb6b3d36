"""Forked workers of one pipeline: started, ended and weighed; whoever ends unasked is noticed."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.worker import WorkerOrders, run_worker
from tests.support.cluster import WorkerCluster, WorkerProcess
from tests.support.forked_process import fork_process

MEMORY_SAMPLE_INTERVAL_S = 0.2
LOG_TAIL_CHARS = 3_000


@dataclass
class WorkerFleet(WorkerCluster):
    default_orders: dict[str, Any] = field(default_factory=dict)
    """Orders that all workers have."""
    stopped_workers: list[WorkerProcess] = field(default_factory=list)
    """Those that were meant to end."""
    peak_rss_bytes: int = 0
    """The most that one worker has had in RAM."""

    def spawn_worker(self, stages: Sequence[str] = ("all",), **how: Any) -> WorkerProcess:
        """A worker with these stages; `how` is the rest of its orders. It may not be ready yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"worker-{len(self.workers) + 1}"
        notes, log = self.folder / f"{name}.notes", self.folder / f"{name}.log"
        orders = WorkerOrders(str(notes), stages, **{**self.default_orders, **how})
        self.workers.append(
            WorkerProcess(
                fork_process(run_worker, orders, log=log, environment=self.worker_environment()),
                notes,
                log,
            )
        )
        return self.workers[-1]

    def stop_worker(
        self, worker: WorkerProcess, signal_number: signal.Signals = signal.SIGTERM
    ) -> None:
        self.stopped_workers.append(worker)
        worker.stop(signal_number)

    def list_running(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def find_unexpected_exits(self) -> list[WorkerProcess]:
        return [
            worker
            for worker in self.workers
            if worker.process.poll() is not None and worker not in self.stopped_workers
        ]

    def read_log_tails(self) -> str:
        """What each worker wrote last."""
        logs = [worker.errors for worker in self.workers if worker.errors.exists()]
        return "\n".join(
            f"--- {log.name}:\n{log.read_text(errors='replace')[-LOG_TAIL_CHARS:]}" for log in logs
        )

    def read_notes(self, prefix: str) -> list[str]:
        """What all workers have noted under this word."""
        return [
            line.removeprefix(prefix)
            for worker in self.workers
            for line in worker.note_lines
            if line.startswith(prefix)
        ]

    def sample_memory(self) -> None:
        self.peak_rss_bytes = max(
            [
                self.peak_rss_bytes,
                *(read_peak_rss_bytes(worker.process.pid) for worker in self.list_running()),
            ]
        )


@contextmanager
def monitor_memory(fleet: WorkerFleet) -> Iterator[None]:
    """Its workers are weighed all the while."""
    stop_event = threading.Event()

    def sample_until_stopped() -> None:
        while not stop_event.wait(MEMORY_SAMPLE_INTERVAL_S):
            fleet.sample_memory()

    thread = threading.Thread(target=sample_until_stopped, name="scales")
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()


def read_peak_rss_bytes(pid: int) -> int:
    """Bytes that a process has had in RAM at most; 0 of one that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
