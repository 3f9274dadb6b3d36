"""Source files that one upload runs through until the document is visible, and one query.

python -m benchmarks.request_trace

Lists the project's files in which a function is called meanwhile: API, worker, stages and engines
of one process over an embedded Postgres, and the jobs of the sandbox child. `idle` are the files
that the waiting worker calls anyway; the other lists leave them out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from anabranch.config.overrides import NO_OVERRIDES, Overrides
from benchmarks.harness import print_report, run_pipeline, serve_api
from engines.parse import sandbox_jobs

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "anabranch",
    "api",
    "services",
    "retrieval",
    "processors",
    "engines",
    "streams",
    "sql",
    "schemas",
)
IDLE_S = 5.0
DOCUMENT = b"# Pumps\n\nThe pump is oiled every week by Ada Lovelace.\n"


class CallTrace:
    """Profile function that collects the project's files in which a function is called."""

    def __init__(self) -> None:
        self._called: set[str] = set()
        # Set before the pipeline starts its threads: they inherit it when they start.
        threading.setprofile(self._record_call)
        sys.setprofile(self._record_call)

    def _record_call(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            self._called.add(frame.f_code.co_filename)

    def take_files(self) -> set[str]:
        """Return the files since the last call."""
        called, self._called = self._called, set()
        paths = [Path(name).relative_to(ROOT) for name in called if name.startswith(f"{ROOT}/")]
        return {str(path) for path in paths if path.parts[0] in PACKAGES}


async def measure(overrides: Overrides = NO_OVERRIDES) -> dict[str, Any]:
    trace = CallTrace()
    async with (
        run_pipeline(overrides) as bench,
        serve_api(bench.settings, bench.dsn, overrides) as http,
    ):
        await upload(http, b"warm up", "warm-up")
        await bench.wait_until_searchable(1)
        trace.take_files()
        await asyncio.sleep(IDLE_S)
        idle_files = trace.take_files()
        await upload(http, DOCUMENT, "pumps")
        await bench.wait_until_searchable(2)
        upload_files = trace.take_files()
        await ask(http)
        query_files = trace.take_files()
    run_child_jobs()  # imports the readers
    trace.take_files()
    run_child_jobs()
    upload_files |= trace.take_files()
    return {
        "benchmark": "request_trace",
        "upload": count_files(upload_files, idle_files),
        "query": count_files(query_files, idle_files),
        "idle": sorted(idle_files),
    }


def count_files(files: set[str], idle_files: set[str]) -> dict[str, Any]:
    return {
        "files": len(files),
        "files_not_idle": len(files - idle_files),
        "by_package": {
            package: sum(file.startswith(f"{package}/") for file in files) for package in PACKAGES
        },
        "not_idle": sorted(files - idle_files),
    }


async def ask(http: Any) -> None:
    response = await http.post("/v1/query", json={"query": "Who oils the pump?"})
    response.raise_for_status()


async def upload(http: Any, document: bytes, name: str) -> None:
    response = await http.post("/v1/ingest", files={"file": (f"{name}.md", document)})
    response.raise_for_status()


def run_child_jobs() -> None:
    """Run in this process what the sandbox child does for the document."""
    with tempfile.NamedTemporaryFile(suffix=".md") as file:
        file.write(DOCUMENT)
        file.flush()
        plan = json.loads(sandbox_jobs.plan_document(file.name, "pumps.md", None, 10))
        for part in plan["parts"]:
            sandbox_jobs.read_part(file.name, plan["media_type"], part, 10_000)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print_report(asyncio.run(measure()))


if __name__ == "__main__":
    main()
