"""Demo: ingest the sample documents, ask two questions with cited answers and one without an
answer.

Runs the command line against an embedded server in a temporary folder. Exits with 0 if each command
exits as expected.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ANSWERED, REFUSED = 0, 4
READY_S = 120


def build_environment() -> dict[str, str]:
    """Return the environment without settings of this system, except the location of Postgres."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANABRANCH_") or name.startswith("ANABRANCH_PG_")
    }


def build_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "anabranch", *arguments]


@contextmanager
def run_server(folder: Path) -> Iterator[dict[str, str]]:
    """Start the server and yield its URL and token as environment variables.

    Stops it with SIGINT, as Ctrl-C does.
    """
    ready_file = folder / "ready.json"
    command = build_command(
        "up", "--data", str(folder / "data"), "--port", "0", "--ready-file", str(ready_file)
    )
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=build_environment(), stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield _wait_for_server(process, ready_file, folder / "server.log")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _wait_for_server(
    process: subprocess.Popen[bytes], ready_file: Path, log: Path
) -> dict[str, str]:
    deadline = time.monotonic() + READY_S
    while not ready_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(
                "The server did not start. Its log ends with:\n"
                f"{log.read_text(errors='replace')[-4000:]}"
            )
        time.sleep(0.1)
    ready_info = json.loads(ready_file.read_text())
    return {"ANABRANCH_SERVER": ready_info["url"], "ANABRANCH_TOKEN": ready_info["token"]}


def run_command(connection: dict[str, str], *arguments: str, expected_exit_code: int) -> None:
    """Print and run a command. Ends the demo if the exit code is unexpected."""
    words = (f'"{argument}"' if " " in argument else argument for argument in arguments)
    print(f"\n$ anabranch {' '.join(words)}", flush=True)
    code = subprocess.run(
        build_command(*arguments), env=build_environment() | connection, check=False
    ).returncode
    if code:
        print(f"(exit {code})", flush=True)
    if code != expected_exit_code:
        raise SystemExit(
            f"`anabranch {arguments[0]}` exited with {code} instead of {expected_exit_code}."
        )


def main() -> None:
    questions: list[dict[str, Any]] = yaml.safe_load(
        (HERE / "questions.yaml").read_text(encoding="utf-8")
    )
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as folder:
        print("Starting Postgres, the log, the stages and the API …", flush=True)
        with run_server(Path(folder)) as connection:
            run_command(
                connection,
                "ingest",
                os.path.relpath(HERE / "corpus"),
                "--wait",
                expected_exit_code=ANSWERED,
            )
            for question in questions:
                run_command(
                    connection,
                    "query",
                    question["question"],
                    expected_exit_code=ANSWERED if question["document"] else REFUSED,
                )
    print("The demo is complete and its data is deleted. To use your own documents:")
    print("  .venv/bin/anabranch up")
    print("  .venv/bin/anabranch ingest FILE --wait    (in another terminal)")
    print("  .venv/bin/anabranch query QUESTION")


if __name__ == "__main__":
    main()
