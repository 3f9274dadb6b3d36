"""Source files that one upload runs through, from the HTTP request until the document is visible.

python -m benchmarks.upload_trace

Lists the project's files in which a function is called meanwhile: API, worker, stages and engines
of one process over an embedded Postgres, and the jobs of the sandbox child. `idle` are the files
among them that the waiting worker calls anyway.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from anabranch.config.overrides import NO_OVERRIDES
from benchmarks.harness import print_report, run_pipeline, serve_api
from engines.parse import sandbox_jobs

ROOT = Path(__file__).parents[1]
PACKAGES = ("anabranch", "api", "services", "processors", "engines", "streams", "sql", "schemas")
IDLE_S = 5.0
DOCUMENT = b"# Pumps\n\nThe pump is oiled every week by Ada Lovelace.\n"


@contextmanager
def trace_files() -> Iterator[set[str]]:
    """Collect the project's files in which a function is called, in any thread."""
    called: set[str] = set()

    def record_call(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            called.add(frame.f_code.co_filename)

    files: set[str] = set()
    threading.setprofile(record_call)
    sys.setprofile(record_call)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        files |= {
            str(path.relative_to(ROOT))
            for path in map(Path, called)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
        }


async def measure() -> dict[str, Any]:
    async with run_pipeline(NO_OVERRIDES) as bench, serve_api(bench, NO_OVERRIDES) as http:
        await upload(http, b"warm up", "warm-up")
        await bench.wait_until_searchable(1)
        with trace_files() as idle_files:
            await asyncio.sleep(IDLE_S)
        with trace_files() as files:
            await upload(http, DOCUMENT, "pumps")
            await bench.wait_until_searchable(2)
    run_child_jobs()  # imports the readers
    with trace_files() as child_files:
        run_child_jobs()
    files |= child_files
    return {
        "benchmark": "upload_trace",
        "files": len(files),
        "files_not_idle": len(files - idle_files),
        "by_package": {
            package: sum(file.startswith(f"{package}/") for file in files) for package in PACKAGES
        },
        "idle": sorted(files & idle_files),
        "upload": sorted(files - idle_files),
    }


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
