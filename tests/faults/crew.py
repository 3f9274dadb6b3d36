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

from tests.faults.worker import Orders, run
from tests.forked import forked
from tests.integration.cluster import Cluster, Worker

WEIGHED_EVERY_S = 0.2
LAST_WORDS = 3_000


@dataclass
class Crew(Cluster):
    usual: dict[str, Any] = field(default_factory=dict)
    """Orders that all workers have."""
    ended: list[Worker] = field(default_factory=list)
    """Those that were meant to end."""
    peak_bytes: int = 0
    """The most that one worker has had in RAM."""

    def employ(self, stages: Sequence[str] = ("all",), **how: Any) -> Worker:
        """A worker with these stages; `how` is the rest of its orders. It may not be ready yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"worker-{len(self.workers) + 1}"
        notes, log = self.folder / f"{name}.notes", self.folder / f"{name}.log"
        orders = Orders(str(notes), stages, **{**self.usual, **how})
        self.workers.append(Worker(forked(run, orders, log=log, environment=self.settings_of_workers()), notes, log))
        return self.workers[-1]

    def dismiss(self, worker: Worker, how: signal.Signals = signal.SIGTERM) -> None:
        self.ended.append(worker)
        worker.end(how)

    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def deserters(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.process.poll() is not None and worker not in self.ended]

    def last_words(self) -> str:
        """What each worker wrote last."""
        logs = [worker.errors for worker in self.workers if worker.errors.exists()]
        return "\n".join(f"--- {log.name}:\n{log.read_text(errors='replace')[-LAST_WORDS:]}" for log in logs)

    def noted(self, prefix: str) -> list[str]:
        """What all workers have noted under this word."""
        return [line.removeprefix(prefix) for worker in self.workers for line in worker.noted if line.startswith(prefix)]

    def weigh(self) -> None:
        self.peak_bytes = max([self.peak_bytes, *(most_in_ram(worker.process.pid) for worker in self.alive())])


@contextmanager
def weighed(crew: Crew) -> Iterator[None]:
    """Its workers are weighed all the while."""
    over = threading.Event()

    def keep_weighing() -> None:
        while not over.wait(WEIGHED_EVERY_S):
            crew.weigh()

    scales = threading.Thread(target=keep_weighing, name="scales")
    scales.start()
    try:
        yield
    finally:
        over.set()
        scales.join()


def most_in_ram(pid: int) -> int:
    """Bytes that a process has had in RAM at most; 0 of one that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
