"""`anabranch watch`: follow the log, or ingest a folder."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_json_line, print_stderr
from schemas.errors import ConfigurationError, NotFound

LOG_GROUP, FOLDER_GROUP = Group("Log options", sort_key=1), Group("Folder options", sort_key=2)
Repeatable = Parameter(negative="")
TimeArgument = Parameter(allow_leading_hyphen=True)


@Parameter(name="*", group=LOG_GROUP)
@dataclass(frozen=True)
class LogWatchOptions:
    """Which events to show, and how."""

    topic: Annotated[
        tuple[str, ...], Repeatable, Parameter(help="Only show events of this topic. Repeatable.")
    ] = ()
    type: Annotated[
        tuple[str, ...],
        Repeatable,
        Parameter(
            help=(
                "Only show events of this type, such as document.indexed.v1; any version if "
                "omitted. Repeatable."
            )
        ),
    ] = ()
    key: Annotated[str | None, Parameter(help="Only show events with this key.")] = None
    document: Annotated[
        UUID | None, Parameter(help="Only show events of this document, after its admission.")
    ] = None
    run: Annotated[UUID | None, Parameter(help="Only show events of this run.")] = None
    begin: Annotated[
        str | None,
        TimeArgument,
        Parameter(
            name="--from",
            help=(
                "Start at: begin, now, a printed cursor, a time, or an age such as -15m.  "
                "[default: now]"
            ),
        ),
    ] = None
    until: Annotated[
        str | None,
        TimeArgument,
        Parameter(help="Stop at: now, a time, or an age such as -15m.  [default: never]"),
    ] = None
    format: Annotated[
        str | None,
        Parameter(
            help="Format of a line: %t topic, %p partition, %o offset, %k key, %y type, %d "
            "document, %i id, "
            "%s source, %a time of append, %c cursor, %v payload, %% percent sign."
        ),
    ] = None


@Parameter(name="*", group=FOLDER_GROUP)
@dataclass(frozen=True)
class FolderWatchOptions:
    """Which files to ingest, and the source to create."""

    name: Annotated[
        str | None, Parameter(help="Name of the source.  [default: from the folder's name]")
    ] = None
    glob: Annotated[
        str | None, Parameter(help="Only include files that match this glob pattern.  [default: *]")
    ] = None
    include: Annotated[
        tuple[str, ...],
        Repeatable,
        Parameter(
            help=(
                "Also ingest files that match this pattern and are skipped otherwise: code, locks, "
                "temporary and system files. Repeatable."
            )
        ),
    ] = ()
    every: Annotated[
        float | None, Parameter(help="Seconds between scans.  [default: 2]", validator=Number(gt=0))
    ] = None
    collection: Annotated[str | None, Parameter(help="Collection of the documents.")] = None
    tag: Annotated[
        tuple[str, ...], Repeatable, Parameter(help="Tag of the documents. Repeatable.")
    ] = ()


DEFAULT, DEFAULT_LOG_OPTIONS, DEFAULT_FOLDER_OPTIONS = (
    RemoteOptions(),
    LogWatchOptions(),
    FolderWatchOptions(),
)


def watch(
    path: Path | None = None,
    /,
    *,
    log: LogWatchOptions = DEFAULT_LOG_OPTIONS,
    folder: FolderWatchOptions = DEFAULT_FOLDER_OPTIONS,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Follow the events on the log; with a PATH, ingest that folder and its changes. Runs
    until Ctrl-C.

    Changes made to the folder in the meantime are ingested at the next start. With --json, prints
    one object per line.

    Parameters
    ----------
    path
        Folder to watch. Without it, events are shown.
    """
    if path is None:
        _reject_options(folder, "needs a folder", "Give the folder: anabranch watch PATH.")
        return asyncio.run(_watch_log(log, common))
    _reject_options(log, "applies to the log only", "Omit PATH to watch the log.")
    return _watch_folder(path, folder, common)


def _reject_options(
    options: LogWatchOptions | FolderWatchOptions, problem: str, remedy: str
) -> None:
    """Raise ConfigurationError if one of the options is set."""
    set_options = [option.name for option in fields(options) if getattr(options, option.name)]
    if set_options:
        raise ConfigurationError(
            f"--{'from' if set_options[0] == 'begin' else set_options[0]} {problem}.", remedy=remedy
        )


async def _watch_log(options: LogWatchOptions, common: RemoteOptions) -> int:
    from anabranch.cli.watch_log import (
        EventFilter,
        make_entry_printer,
        parse_end,
        parse_start,
        watch_log,
    )

    now = datetime.now(UTC)
    after, since = parse_start(options.begin, now)
    topics = options.topic or (("queries",) if options.run else ())
    keys = tuple(str(key) for key in (options.key, options.run) if key is not None)
    document = str(options.document) if options.document else None
    event_filter = EventFilter(
        after, since, parse_end(options.until, now), topics, options.type, keys, document
    )
    return await watch_log(
        event_filter, make_entry_printer(options.format, as_json=common.is_json), common
    )


def _watch_folder(path: Path, options: FolderWatchOptions, common: RemoteOptions) -> int:
    folder = path.resolve()
    if not folder.is_dir():
        raise NotFound(
            f"No such folder: {path}.",
            remedy="Check the path; ingest single files with `anabranch ingest`.",
        )
    name = options.name or to_source_name(folder)
    definition = {
        "kind": "folder",
        "path": str(folder),
        "glob": options.glob or "*",
        "include": list(options.include),
        "every_s": options.every or 2.0,
    }
    return asyncio.run(
        watch_folder(
            name,
            {
                "name": name,
                "connector": definition,
                "collection": options.collection,
                "tags": list(options.tag),
            },
            common,
        )
    )


POLL_S = 1.0


async def watch_folder(name: str, body: dict[str, Any], common: RemoteOptions) -> int:
    """Create the source that `body` declares, unless its folder is watched already.

    Then print a line whenever its status changes, until interrupted.
    """
    from anabranch.cli.server_connection import open_or_initialize_client
    from anabranch.cli.source import approve_folder

    async with open_or_initialize_client(common) as client:
        approve_folder(body["connector"], common)
        sources = {source["name"]: source for source in (await client.get("/v1/sources"))["items"]}
        existing = sources.get(body["name"])
        # A source of another kind does not watch the folder: creating it reports the conflict.
        is_watched = (
            existing is not None
            and existing["kind"] == "folder"
            and existing["connector"]["path"] == body["connector"]["path"]
        )
        if not is_watched:
            await client.post("/v1/sources", body)
            print_stderr(
                f"watching {body['connector']['path']} as source {name}; to stop permanently: "
                f"anabranch source remove {name}",
                quiet=common.quiet,
            )
        last_line: dict[str, Any] = {}
        while True:
            sources = {
                source["name"]: source for source in (await client.get("/v1/sources"))["items"]
            }
            if entry := sources.get(name):
                line = {
                    "state": entry["state"],
                    "documents": entry["documents"],
                    "files": entry["status"].get("items"),
                    "status": entry["status"],
                }
                if line != last_line:
                    _print_status(line, common)
                    last_line = line
            await asyncio.sleep(POLL_S)


def _print_status(line: dict[str, Any], common: RemoteOptions) -> None:
    if common.is_json:
        print_json_line(line)
        return
    print(
        f"{line['state']}: {line['documents']} documents of "
        f"{line['files'] if line['files'] is not None else '?'} files",
        flush=True,
    )
    if line["state"] == "failed":
        print_stderr(
            f"{line['status']['detail']} [{line['status']['code']}]\n  → {line['status']['remedy']}"
        )
    for file, problem in line["status"].get("problems", {}).items():
        print_stderr(f"{file}: {problem}")


def to_source_name(folder: Path) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-")[:34]
    return f"watch-{name}" if name else "watch"
