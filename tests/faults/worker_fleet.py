"""Forked workers of one pipeline: their starts, stops, memory and unexpected exits."""

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
    """Orders of every worker."""
    stopped_workers: list[WorkerProcess] = field(default_factory=list)
    """Workers that were stopped on purpose."""
    peak_rss_bytes: int = 0
    """Peak memory of one worker."""

    def spawn_worker(self, stages: Sequence[str] = ("all",), **orders: Any) -> WorkerProcess:
        """Start a worker with these stages and further `orders`; it may not be ready yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"worker-{len(self.workers) + 1}"
        notes, log = self.folder / f"{name}.notes", self.folder / f"{name}.log"
        worker_orders = WorkerOrders(str(notes), stages, **{**self.default_orders, **orders})
        self.workers.append(
            WorkerProcess(
                fork_process(
                    run_worker, worker_orders, log=log, environment=self.worker_environment()
                ),
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

    def stop_running(self) -> None:
        for worker in self.list_running():
            self.stop_worker(worker)

    def list_running(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def find_unexpected_exits(self) -> list[WorkerProcess]:
        return [
            worker
            for worker in self.workers
            if worker.process.poll() is not None and worker not in self.stopped_workers
        ]

    def read_log_tails(self) -> str:
        """Return the last log lines of each worker."""
        logs = [worker.errors for worker in self.workers if worker.errors.exists()]
        return "\n".join(
            f"--- {log.name}:\n{log.read_text(errors='replace')[-LOG_TAIL_CHARS:]}" for log in logs
        )

    def read_notes(self, prefix: str) -> list[str]:
        """Return the notes of all workers with this prefix, without it."""
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
    """Sample the memory of the workers until the context ends."""
    stop_event = threading.Event()

    def sample_until_stopped() -> None:
        while not stop_event.wait(MEMORY_SAMPLE_INTERVAL_S):
            fleet.sample_memory()

    thread = threading.Thread(target=sample_until_stopped, name="memory-monitor")
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()


def read_peak_rss_bytes(pid: int) -> int:
    """Return the peak memory of a process, or 0 if it has exited."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
