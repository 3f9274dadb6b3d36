"""`anabranch watch`: follow the log, or ingest a folder."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import format_time
from anabranch.cli.names import DOCUMENTS, RUNS, find_id
from anabranch.cli.options import REMOTE, RemoteOptions, make_conflict_error
from anabranch.cli.output import (
    choose_display_name,
    format_waiting_stage,
    print_json_line,
    print_stderr,
    resume_hint,
    to_single_line,
)
from schemas.errors import ConfigurationError, NotFound
from schemas.timestamps import to_utc

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

LOG_GROUP, FOLDER_GROUP = Group("Log options", sort_key=1), Group("Folder options", sort_key=2)
TimeArgument = Parameter(allow_leading_hyphen=True)


@Parameter(name="*", group=LOG_GROUP)
@dataclass(frozen=True)
class LogWatchOptions:
    """Which events to show, and how."""

    topic: tuple[str, ...] = ()
    """Only show events of this topic. Repeatable."""
    type: Annotated[
        tuple[str, ...],
        Parameter(
            help="Only show events of this type, such as document.indexed.v1; any version if "
            "omitted. Repeatable."
        ),
    ] = ()
    key: str | None = None
    """Only show events with this key."""
    document: str | None = None
    """Only show events of this document, by id or name, after its admission."""
    run: str | None = None
    """Only show events of this run (id or first digits)."""
    begin: Annotated[str | None, TimeArgument, Parameter(name="--from")] = None
    """Start at: begin, now, a printed cursor, a time, or an age such as -15m.  [default: now]"""
    until: Annotated[str | None, TimeArgument] = None
    """Stop at: now, a time, or an age such as -15m.  [default: never]"""
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

    name: str | None = None
    """Name of the source.  [default: from the folder's name]"""
    glob: str | None = None
    """Only include files that match this glob pattern.  [default: *]"""
    include: Annotated[
        tuple[str, ...],
        Parameter(
            help="Also ingest files that match this pattern and are skipped otherwise: code, "
            "locks, temporary and system files. Repeatable."
        ),
    ] = ()
    every: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """Seconds between scans.  [default: 2]"""
    collection: str | None = None
    """Collection of the documents."""
    tag: tuple[str, ...] = ()
    """Tag of the documents. Repeatable."""


DEFAULT_LOG_OPTIONS, DEFAULT_FOLDER_OPTIONS = LogWatchOptions(), FolderWatchOptions()


def watch(
    path: Path | None = None,
    /,
    *,
    log: LogWatchOptions = DEFAULT_LOG_OPTIONS,
    folder: FolderWatchOptions = DEFAULT_FOLDER_OPTIONS,
    common: RemoteOptions = REMOTE,
) -> int:
    """Follow the events on the log; with a PATH, ingest that folder and its changes. Runs
    until Ctrl-C.

    Changes made to the folder in the meantime are ingested at the next start. With --json, prints
    one object per line.

    Args:
        path: Folder to watch. Without it, events are shown.
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
    """Print events until interrupted, or until the end of the time range."""
    from anabranch.cli.server_connection import open_client

    now = datetime.now(UTC)
    after, since = parse_start(options.begin, now)
    until = parse_end(options.until, now)
    topics = options.topic or (("queries",) if options.run else ())
    print_entry = make_entry_printer(options.format, as_json=common.is_json)
    async with open_client(common) as client:
        document = await find_id(client, DOCUMENTS, options.document) if options.document else None
        run = await find_id(client, RUNS, options.run) if options.run else None
        keys = tuple(key for key in (options.key, run) if key is not None)
        event_filter = EventFilter(after, since, until, topics, options.type, keys, document)
        await follow(client, event_filter, print_entry, quiet=common.quiet)
    return 0


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
    document_fields = {"collection": options.collection, "tags": list(options.tag)}
    body = {"name": name, "connector": definition} | document_fields
    return asyncio.run(watch_folder(name, body, common))


POLL_S = 1.0
MAX_RUNNING = 20


async def watch_folder(name: str, body: dict[str, Any], common: RemoteOptions) -> int:
    """Create the source that `body` declares, unless its folder is watched already.

    Then print a line whenever its status changes, until interrupted.
    """
    from anabranch.cli.server_connection import open_or_initialize_client
    from anabranch.cli.source import approve_folder

    async with open_or_initialize_client(common) as client:
        approve_folder(body["connector"], common)
        sources = (await client.get("/v1/sources"))["items"]
        # A source without a path is of another kind: creating one reports the conflict.
        paths = {source["name"]: source["connector"].get("path") for source in sources}
        if paths.get(name) != body["connector"]["path"]:
            await client.post("/v1/sources", body)
            common.print_note(
                f"watching {body['connector']['path']} as source {name}, also after Ctrl-C, until "
                f"`anabranch source remove {name}`"
            )
        last_line: dict[str, Any] = {}
        last_running: list[str] = []
        while True:
            sources = (await client.get("/v1/sources"))["items"]
            if entry := next((source for source in sources if source["name"] == name), None):
                line = {
                    "state": entry["state"],
                    "documents": entry["documents"],
                    "files": entry["status"].get("items"),
                    "status": entry["status"],
                }
                if line != last_line:
                    _print_status(line, common)
                    last_line = line
                running = await _list_running(client, entry["ce_source"])
                if running and running != last_running:
                    if common.is_json:
                        print_json_line({"running": running})
                    else:
                        common.print_note("\n".join(map(to_single_line, running)))
                last_running = running
            await asyncio.sleep(POLL_S)


async def _list_running(client: ApiClient, source: str) -> list[str]:
    """Return the documents of a source that wait, each with the stage for which it waits."""
    # The counts are cheap, and mostly nothing runs.
    if not (await client.get("/health"))["documents"].get("running"):
        return []
    page = await client.get("/v1/documents", state="running", limit=MAX_RUNNING)
    return [
        f"{choose_display_name(document)}: {format_waiting_stage(document['waiting'])}"
        for document in page["items"]
        if document["source"] == source and document.get("waiting")
    ]


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


LOG_POLL_S = 0.5
PAGE_SIZE = 500
AGO_PATTERN = re.compile(r"-?(\d+)([smhd])")
TIMEDELTA_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
FORMAT_FIELDS = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "k": "key",
    "y": "type",
    "d": "document_id",
    "i": "id",
    "s": "source",
    "a": "appended_at",
    "c": "cursor",
    "v": "data",
}
"""Field of an entry by the letter after %."""

Entry = dict[str, Any]
PrintEntry = Callable[[Entry], None]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Filter of events; `after` is a cursor, `begin` or `now`."""

    after: str = "now"
    since: datetime | None = None
    until: datetime | None = None
    topics: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    document: str | None = None

    def to_query(self) -> dict[str, Any]:
        """Return the filters that the server applies; `is_match` applies the others."""
        topics, since = ",".join(self.topics) or None, format_time(self.since)
        return {"topics": topics, "document": self.document, "since": since, "limit": PAGE_SIZE}

    def is_match(self, entry: Entry) -> bool:
        return (
            (
                not self.types
                or any(_is_type(entry["type"], event_type) for event_type in self.types)
            )
            and all(entry["key"] == key for key in self.keys)
            and (self.until is None or datetime.fromisoformat(entry["appended_at"]) < self.until)
        )


def parse_start(text: str | None, now: datetime) -> tuple[str, datetime | None]:
    """Return the cursor to read from, and the earliest time to show."""
    if text is None or text in ("begin", "now"):
        return text or "now", None
    moment = _parse_time(text, now)
    return ("begin", moment) if moment else (text, None)


def parse_end(text: str | None, now: datetime) -> datetime | None:
    """Return the time to stop at. Raises ConfigurationError if the text is not a time."""
    if text is None or text == "now":
        return now if text else None
    moment = _parse_time(text, now)
    if moment is None:
        raise ConfigurationError(
            f"Invalid time --until {text}.",
            remedy="Use now, -15m (s, m, h or d), or a time such as 2026-11-22T08:30.",
        )
    return moment


def make_entry_printer(line_format: str | None, *, as_json: bool) -> PrintEntry:
    """Return the function that prints an entry.

    Raises InvalidRequest for --format with --json, ConfigurationError for an unknown letter.
    """
    if line_format is None:
        return print_json_line if as_json else _print_plain
    if as_json:
        raise make_conflict_error("--format", "--json")
    if unknown := set(re.findall(r"%(.?)", line_format)) - {*FORMAT_FIELDS, "%"}:
        letters = ", ".join(f"%{letter}" for letter in FORMAT_FIELDS)
        raise ConfigurationError(
            f"Unknown field %{min(unknown)} in --format.",
            remedy=f"Available fields: {letters} and %%.",
        )
    return lambda entry: print(
        re.sub("%(.)", lambda match: _format_field(entry, match[1]), line_format), flush=True
    )


async def follow(
    client: ApiClient,
    event_filter: EventFilter,
    print_entry: PrintEntry,
    *,
    quiet: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Print events as they arrive.

    If interrupted, or if the server becomes unreachable, print the cursor to resume from.
    """
    cursor = event_filter.after
    with resume_hint(lambda: f"to resume: --from {cursor}", quiet=quiet):
        while True:
            page = await client.get("/v1/events", after=cursor, **event_filter.to_query())
            if page["missed"]:
                print_stderr(
                    f"{'at least ' if page['at_least'] else ''}{page['missed']} earlier events "
                    "have expired"
                )
            for entry in filter(event_filter.is_match, page["items"]):
                print_entry(entry)
            # After printing, so that an interrupted page is repeated rather than skipped.
            cursor = page["next"]
            if page["end"] and event_filter.until and now() >= event_filter.until:
                return
            if page["end"]:
                await asyncio.sleep(LOG_POLL_S)


def _parse_time(text: str, now: datetime) -> datetime | None:
    """Parse a time or an age; return None for other text.

    Raises ConfigurationError for a time out of range.
    """
    moment, match = now, AGO_PATTERN.fullmatch(text)
    if match is None:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
    try:
        age = timedelta(**{TIMEDELTA_UNITS[match[2]]: int(match[1])}) if match else timedelta()
        return to_utc(moment) - age
    except (OverflowError, ValueError) as error:
        raise ConfigurationError(
            f"Time {text} is before year 1 or after year 9999.",
            remedy="Use begin to show the whole log.",
        ) from error


def _is_type(entry_type: str | None, event_type: str) -> bool:
    return entry_type is not None and (
        entry_type == event_type or entry_type.rpartition(".v")[0] == event_type
    )


def _format_field(entry: Entry, letter: str) -> str:
    if letter == "%":
        return letter
    value = entry[FORMAT_FIELDS[letter]]
    if letter == "v" and value is not None:
        return json.dumps(value, ensure_ascii=False)
    return "-" if value is None else str(value)


def _print_plain(entry: Entry) -> None:
    location = f"{entry['topic']}[{entry['partition']}]@{entry['offset']}"
    data = entry["data"] or {}
    note = " ".join(str(data[name]) for name in ("external_id", "code", "detail") if data.get(name))
    appended_at = datetime.fromisoformat(entry["appended_at"]).isoformat(timespec="milliseconds")
    print(
        (
            f"{appended_at}  {location:18}  {entry['type'] or 'unreadable':26}  "
            f"{entry['document_id'] or entry['key'] or '-'}  {note}"
        ).rstrip(),
        flush=True,
    )
