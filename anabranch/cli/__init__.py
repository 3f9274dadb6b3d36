"""Command line: one file per command group, and one line in `COMMANDS`.

Commands import heavy modules inside their functions, so that `--help` starts fast. Results go to
stdout, messages to stderr; exit codes are in `errors`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError, CycloptsPanel, Parameter, UnusedCliTokensError
from cyclopts.exceptions import UnknownOptionError

from anabranch.cli.errors import FAILED, USAGE, to_exit_code
from anabranch.cli.output import Declined
from anabranch.process.terminal import escape_streams, get_unescaped
from schemas.errors import AnabranchError

COMMANDS = {
    "up": ("anabranch.cli.up:up", "Run everything in one data folder: Postgres, log, stages, API."),
    "open": (
        "anabranch.cli.login:print_login_link",
        "Print a link that opens the server in a browser.",
    ),
    "down": (
        "anabranch.cli.up:down",
        "Stop the server of a data folder, or delete the folder with its tables.",
    ),
    "api": ("anabranch.cli.up:api", "Run the HTTP API alone, on an external database and log."),
    "worker": ("anabranch.cli.up:worker", "Run pipeline stages."),
    "ingest": ("anabranch.cli.ingest:ingest", "Ingest files, folders, URLs or stdin."),
    "query": (
        "anabranch.cli.query:query",
        "Ask a question and print the answer with its citations.",
    ),
    "search": ("anabranch.cli.query:search", "Find passages without generating an answer."),
    "documents": ("anabranch.cli.documents:app", "List, show, amend and delete documents."),
    "mcp": ("anabranch.cli.mcp:app", "Serve an agent by the Model Context Protocol (MCP)."),
    "entities": ("anabranch.cli.entities:app", "List and show entities, and change their aliases."),
    "collections": (
        "anabranch.cli.collections:app",
        "List collections, set their default profiles, delete them.",
    ),
    "source": (
        "anabranch.cli.source:app",
        "Manage sources of documents: changing tables, folders, URLs.",
    ),
    "watch": (
        "anabranch.cli.watch:watch",
        "Follow the events on the log, or ingest a folder and its changes.",
    ),
    "dlq": ("anabranch.cli.dlq:app", "List, show, redrive and discard dead letters."),
    "replay": ("anabranch.cli.replay:app", "Reprocess events that a stage has already read."),
    "erase": ("anabranch.cli.erase:app", "Erase documents permanently, from the log too."),
    "runs": (
        "anabranch.cli.runs:app",
        "Start and follow runs; list, show, rerun and compare past queries.",
    ),
    "lineage": (
        "anabranch.cli.runs:lineage",
        "Trace an answer's citations back to the uploaded bytes.",
    ),
    "feedback": ("anabranch.cli.judgements:feedback", "Rate an answer or a passage."),
    "questions": (
        "anabranch.cli.questions:app",
        "Save questions that are asked again when a document could change the answer.",
    ),
    "facts": ("anabranch.cli.facts:app", "State, approve, reject and erase facts."),
    "experiments": (
        "anabranch.cli.experiments:app",
        "Compare two profiles on live questions.",
    ),
    "generations": (
        "anabranch.cli.generations:app",
        "List, compare, promote, roll back and drop generations of the index.",
    ),
    "exam": (
        "anabranch.cli.evaluate:exam",
        "Examine an index with questions made from its own documents.",
    ),
    "calibrate": (
        "anabranch.cli.evaluate:calibrate",
        "Learn when to refuse questions and trim passages.",
    ),
    "rebuild": (
        "anabranch.cli.build:rebuild",
        "Rebuild the index from the log without calling a model.",
    ),
    "reindex": (
        "anabranch.cli.build:reindex",
        "Build an index with other settings beside the live one.",
    ),
    "login": ("anabranch.cli.login:login", "Store a credential for a server."),
    "logout": ("anabranch.cli.login:logout", "Remove the stored credential of a server."),
    "whoami": ("anabranch.cli.login:whoami", "Show the identity behind the credential."),
    "keys": (
        "anabranch.cli.keys:app",
        "Create, list, rotate and revoke API keys; rotate the master key.",
    ),
    "audit": ("anabranch.cli.login:audit", "List administrative actions."),
    "topics": ("anabranch.cli.topics:app", "Inspect topics, consumer lag and Kafka ACLs."),
    "db": ("anabranch.cli.db:app", "Migrate, check and scrub the tables."),
    "kafka": ("anabranch.cli.topics:kafka", "Run a single Kafka node with this machine's Java."),
    "eval": ("anabranch.cli.evaluate:app", "Measure the quality of retrieval and parsing."),
    "doctor": ("anabranch.cli.doctor:doctor", "Check this machine and its connections."),
    "config": ("anabranch.cli.config:app", "Show settings, their schema and profiles."),
    "contract": ("anabranch.cli.config:contract", "Generate OpenAPI, AsyncAPI and JSON Schemas."),
    "completion": ("anabranch.cli.version:completion", "Print the completion script of a shell."),
    "version": ("anabranch.cli.version:version", "Print the version."),
}
"""Command to the function or group that implements it, imported when it runs, and to its help."""


def build_app() -> App:
    app = App(
        name="anabranch",
        help="Event-sourced streaming ingestion and retrieval.",
        version_flags=[],
        result_action="return_value",
        # No option has a negative form, unless it names one.
        default_parameter=Parameter(
            negative="", show_default=lambda v: None if v in (None, ()) else str(v)
        ),
        error_formatter=_format_usage_error,
    )
    for name, (import_path, help_text) in COMMANDS.items():
        app.command(import_path, name=name, help=help_text)
    return app


def _format_usage_error(error: CycloptsError) -> object:
    """Return the panel that cyclopts prints, with words of our own for arguments left over."""
    if isinstance(error, UnusedCliTokensError):
        error = CycloptsError(msg=f"Unexpected argument: {' '.join(error.unused_tokens or ())}.")
    return CycloptsPanel(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Titles and texts come from documents and may hold terminal escape sequences.
    escape_streams()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    if tokens == ["--version"]:
        tokens = ["version"]
    if tokens[:1] == ["ingest"]:
        # cyclopts would parse a lone dash as an option.
        tokens = ["/dev/stdin" if token == "-" else token for token in tokens]
    try:
        return int(build_app()(tokens, exit_on_error=False, **_make_color_consoles()) or 0)
    except CycloptsError as error:
        # cyclopts has printed the error, without a way out.
        command = " ".join(("anabranch", *(error.command_chain or ())))
        print(f"  → Run `{command} --help` for usage.", file=sys.stderr)
        if isinstance(error, UnknownOptionError):
            print("    Put `--` before words and names that start with a dash.", file=sys.stderr)
        raise SystemExit(USAGE) from None
    except Declined:
        print("nothing was changed", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (BrokenPipeError, SystemExit) as error:
        # The reader of the pipe, such as `head`, has closed it. rich, which prints help and usage
        # errors, exits with 1 then.
        reason = error.__context__ if isinstance(error, SystemExit) else error
        if not isinstance(reason, BrokenPipeError) or isinstance(reason.__context__, CycloptsError):
            raise
        return 0
    except (AnabranchError, ExceptionGroup) as raised:
        own_error = _find_own_error(raised)
        if own_error is None:
            raise
        print(f"error: {own_error.detail} [{own_error.code}]", file=sys.stderr)
        if own_error.remedy:
            print(f"  → {own_error.remedy}", file=sys.stderr)
        return to_exit_code(own_error)


def _make_color_consoles() -> dict[str, Any]:
    """Return consoles for help and usage errors, which cyclopts colors itself on a terminal."""
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        return {}
    from rich.console import Console

    return {
        "console": Console(file=get_unescaped(sys.stdout)),
        "error_console": Console(file=get_unescaped(sys.stderr)),
    }


def _find_own_error(error: Exception | None) -> AnabranchError | None:
    # A task group wraps the error that stopped it.
    while isinstance(error, ExceptionGroup):
        own_errors, _ = error.split(AnabranchError)
        error = own_errors.exceptions[0] if own_errors else None
    return error if isinstance(error, AnabranchError) else None
