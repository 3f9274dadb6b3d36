"""The command line: one file a group. What is heavy is imported inside the commands, so that `--help` comes at once.

stdout is data, stderr is talk. Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 not found, 4 refused, 5 partly done, 6 gate does not hold, 7 backend not reachable, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from cyclopts import App

from anabranch.cli.exit_codes import to_exit_code
from anabranch.process.terminal import escape_streams, get_unescaped
from schemas.errors import AnabranchError

COMMANDS = {
    "up": "anabranch.cli.up:up",
    "open": "anabranch.cli.login_link:print_login_link",
    "down": "anabranch.cli.down:down",
    "api": "anabranch.cli.up:api",
    "worker": "anabranch.cli.up:worker",
    "ingest": "anabranch.cli.ingest:ingest",
    "query": "anabranch.cli.query:query",
    "search": "anabranch.cli.query:search",
    "documents": "anabranch.cli.documents:app",
    "source": "anabranch.cli.source:app",
    "watch": "anabranch.cli.watch:watch",
    "dlq": "anabranch.cli.dlq:app",
    "replay": "anabranch.cli.replay:app",
    "erase": "anabranch.cli.erase:app",
    "runs": "anabranch.cli.runs:app",
    "lineage": "anabranch.cli.lineage:lineage",
    "feedback": "anabranch.cli.feedback:feedback",
    "generations": "anabranch.cli.generations:app",
    "rebuild": "anabranch.cli.build:rebuild",
    "reindex": "anabranch.cli.build:reindex",
    "login": "anabranch.cli.login:login",
    "logout": "anabranch.cli.login:logout",
    "whoami": "anabranch.cli.login:whoami",
    "keys": "anabranch.cli.keys:app",
    "audit": "anabranch.cli.audit:audit",
    "topics": "anabranch.cli.topics:app",
    "db": "anabranch.cli.db:app",
    "kafka": "anabranch.cli.kafka:app",
    "eval": "anabranch.cli.evaluate:app",
    "doctor": "anabranch.cli.doctor:doctor",
    "config": "anabranch.cli.config:app",
    "contract": "anabranch.cli.contract:app",
    "version": "anabranch.cli.version:version",
}
COMMAND_HELP = {
    "up": "Run everything in one data folder: Postgres, log, stages, API.",
    "open": "Print a link that opens the server in a browser.",
    "down": "Stop the server of a data folder, or delete the folder with its tables.",
    "api": "Run the HTTP API alone, on a database and log that are elsewhere.",
    "worker": "Run stages of the pipeline.",
    "ingest": "Take in files, folders, addresses or stdin.",
    "query": "Ask a question; the answer comes with its citations.",
    "search": "Find passages, without an answer.",
    "documents": "List, show and remove documents.",
    "source": "What documents are taken from: tables that change, folders, addresses.",
    "watch": "Show events as the log takes them; or take in a folder, and what changes in it.",
    "dlq": "Events that could not be processed.",
    "replay": "Let a stage react once more to events it has read.",
    "erase": "Remove documents for good, from the log too.",
    "runs": "Questions that were asked: list, show, answer again, compare.",
    "lineage": "Walk an answer's citations back to the uploaded bytes.",
    "rebuild": "Make the index anew from the log, without any model.",
    "reindex": "Build an index with other settings beside the one that answers.",
    "feedback": "Say whether an answer, or a passage, helps.",
    "generations": "Indexes beside each other: compare, switch, roll back, drop.",
    "login": "Store a credential for a server.",
    "logout": "Remove the stored credential of a server.",
    "whoami": "Show who the credential belongs to.",
    "keys": "Create, list, rotate and revoke API keys; rotate the master key.",
    "audit": "List administrative acts.",
    "topics": "The log: topics, and how far each stage has read.",
    "db": "The tables: migrations and checksum.",
    "kafka": "A single Kafka node on this machine's Java.",
    "eval": "How good are retrieval and parsing?",
    "doctor": "Check this machine and what it connects to.",
    "config": "Settings: what holds, and what there is.",
    "contract": "OpenAPI, AsyncAPI and JSON Schemas, generated.",
    "version": "Print the version.",
}


def build_app() -> App:
    app = App(name="anabranch", help="Event-sourced streaming ingestion and retrieval.", version_flags=[], result_action="return_value")
    for name, import_path in COMMANDS.items():
        app.command(import_path, name=name, help=COMMAND_HELP[name])
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. Whatever it prints is escaped on its way: titles and texts come from others."""
    escape_streams()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    if tokens == ["--version"]:
        tokens = ["version"]
    # A lone dash would be taken for an option.
    tokens = ["/dev/stdin" if token == "-" else token for token in tokens]
    try:
        return int(build_app()(tokens, **_make_color_consoles()) or 0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except AnabranchError as error:
        _print_error(error)
        return to_exit_code(error)
    except ExceptionGroup as group:
        own_error = _find_own_error(group)
        if own_error is None:
            raise
        _print_error(own_error)
        return to_exit_code(own_error)


def _make_color_consoles() -> dict[str, Any]:
    """For help and usage errors, which bring colors of their own to a terminal."""
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        return {}
    from rich.console import Console

    return {"console": Console(file=get_unescaped(sys.stdout)), "error_console": Console(file=get_unescaped(sys.stderr))}


def _print_error(error: AnabranchError) -> None:
    print(f"error: {error.detail} [{error.code}]", file=sys.stderr)
    if error.remedy:
        print(f"  → {error.remedy}", file=sys.stderr)


def _find_own_error(group: ExceptionGroup[Exception]) -> AnabranchError | None:
    error: Exception | None = group
    while isinstance(error, ExceptionGroup):
        own_errors, _ = error.split(AnabranchError)
        error = own_errors.exceptions[0] if own_errors else None
    return error if isinstance(error, AnabranchError) else None
