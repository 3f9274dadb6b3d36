"""Start-up: seconds until `anabranch up` is ready, and what it uses when idle.

Each round starts `up` in a new data folder, stops it, and starts it again in the same folder. CPU
is that of every process that was started, including those that have ended. Memory is the
proportional set size (PSS): pages that several processes share are divided among them.

python -m benchmarks.start_up --rounds 5 --idle-s 60
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from anabranch.process.database import POSTGRES_FOLDER
from benchmarks.harness import print_report
from benchmarks.processes import measure_pss_mb, measure_tree_cpu, read_command, walk_tree
from sql.embedded.server import EmbeddedPostgres

TIMEOUT_S = 120.0
POLL_S = 0.002
NOTES = (
    "The keeper of the lock at Ardmore raises the sluice at five past six in the morning.",
    "The ferry to the island leaves on the ninth of June and returns on the last of August.",
    "The works yard services each pump of the district twice a year, in March and in October.",
)
QUESTIONS = (
    "When does the keeper raise the sluice?",
    "On which day does the ferry leave?",
    "How often is each pump serviced?",
)


@dataclass(frozen=True)
class Server:
    """A ready `anabranch up`."""

    pid: int
    postmaster: int
    http: httpx2.Client

    def measure_cpu(self) -> float:
        return measure_tree_cpu(self.pid) + measure_tree_cpu(self.postmaster)

    def measure_memory(self) -> dict[str, float]:
        """Return the PSS by kind of process, in MiB, and their sum."""
        memory: dict[str, float] = {}
        for pid in (*walk_tree(self.pid), *walk_tree(self.postmaster)):
            kind = _classify_process(pid)
            memory[kind] = memory.get(kind, 0.0) + measure_pss_mb(pid)
        return {"all": sum(memory.values())} | memory


def _classify_process(pid: int) -> str:
    name, command = Path(f"/proc/{pid}/comm").read_text().strip(), read_command(pid)
    if command.startswith("postgres:") or "bin/postgres" in command:
        return "postgres"
    if name.startswith("anabranch"):
        return name
    # `python -m MODULE …`
    words = command.split()
    return words[words.index("-m") + 1].rpartition(".")[2]


@contextmanager
def run_up(folder: Path) -> Iterator[tuple[Server, dict[str, float]]]:
    """Start the server; yield it, and the seconds that it took to become ready."""
    ready_file = folder.parent / "ready.json"
    command = [sys.executable, "-m", "anabranch", "up", "--port", "0", "-q"]
    started_at = time.perf_counter()
    with subprocess.Popen(
        [*command, "--data", str(folder), "--ready-file", str(ready_file)],
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            _wait(ready_file.exists, process)
            wall_s = time.perf_counter() - started_at
            info = json.loads(ready_file.read_text())
            data = EmbeddedPostgres(folder / POSTGRES_FOLDER).data
            postmaster = int((data / "postmaster.pid").read_text().splitlines()[0])
            headers = {"Authorization": f"Bearer {info['token']}"}
            with httpx2.Client(base_url=info["url"], headers=headers, timeout=TIMEOUT_S) as http:
                server = Server(process.pid, postmaster, http)
                yield server, {"wall_s": wall_s, "cpu_s": server.measure_cpu()}
        finally:
            process.send_signal(signal.SIGTERM)


def _wait(is_done: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"`anabranch up` ended with exit code {process.returncode}.")
        if time.monotonic() > deadline:
            raise TimeoutError(f"Not done within {TIMEOUT_S:g} s.")
        time.sleep(POLL_S)


def measure_starts(rounds: int) -> dict[str, Any]:
    """Start in a new folder and again in the same one, `rounds` times."""
    starts: dict[str, list[dict[str, float]]] = {"new_folder": [], "existing_folder": []}
    for _ in range(rounds):
        with _make_folder() as folder:
            for kind in starts:
                with run_up(folder) as (_, figures):
                    starts[kind].append(figures)
    return {
        kind: {
            name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
            for name in ("wall_s", "cpu_s")
            if (values := [figures[name] for figures in runs])
        }
        for kind, runs in starts.items()
    }


def measure_idle(settle_s: float, idle_s: float) -> dict[str, Any]:
    """Measure memory and CPU of an idle server, before and after documents and questions."""
    with _make_folder() as folder, run_up(folder) as (server, _):
        asked_at = time.perf_counter()
        answer = server.http.post("/v1/query", json={"query": QUESTIONS[0]})
        first_question_s = time.perf_counter() - asked_at
        answer.raise_for_status()
        figures: dict[str, Any] = {"first_question_s": first_question_s}
        time.sleep(settle_s)
        figures["memory_mib"] = server.measure_memory()
        figures["cpu_percent"] = _measure_idle_cpu(server, idle_s)
        _ingest_and_ask(server.http)
        time.sleep(settle_s)
        figures["memory_after_questions_mib"] = server.measure_memory()
        figures["cpu_percent_after_questions"] = _measure_idle_cpu(server, idle_s)
    return figures


def _measure_idle_cpu(server: Server, idle_s: float) -> float:
    """Return the share of one core in percent."""
    started_at, cpu_s = time.perf_counter(), server.measure_cpu()
    time.sleep(idle_s)
    return 100 * (server.measure_cpu() - cpu_s) / (time.perf_counter() - started_at)


def _ingest_and_ask(http: httpx2.Client) -> None:
    for note in NOTES:
        http.post("/v1/ingest", json={"text": note}).raise_for_status()

    def are_searchable() -> bool:
        items = http.get("/v1/documents", params={"state": "searchable"}).json()["items"]
        return len(items) == len(NOTES)

    _wait(are_searchable)
    for question in QUESTIONS:
        response = http.post("/v1/query", json={"query": question})
        if not response.raise_for_status().json()["citations"]:
            raise RuntimeError(f"{question!r} was not answered.")


@contextmanager
def _make_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as parent:
        # The account that runs Postgres passes through.
        Path(parent).chmod(0o755)
        yield Path(parent) / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="Pairs of starts.")
    parser.add_argument("--settle-s", type=float, default=15, help="Wait before memory is read.")
    parser.add_argument("--idle-s", type=float, default=60, help="0 measures starts only.")
    arguments = parser.parse_args()
    print_report(
        {
            "benchmark": "start_up",
            "rounds": arguments.rounds,
            **measure_starts(arguments.rounds),
            **(
                {"idle": measure_idle(arguments.settle_s, arguments.idle_s)}
                if arguments.idle_s
                else {}
            ),
        }
    )


if __name__ == "__main__":
    main()
