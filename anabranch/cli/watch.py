"""`anabranch watch`: the log as it grows, or a folder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from anabranch.cli.options import RemoteOptions
from schemas.errors import ConfigurationError, NotFound

LOG_GROUP, FOLDER_GROUP = Group("Of the log", sort_key=1), Group("Of a folder", sort_key=2)
Repeatable = Parameter(negative="")
TimeArgument = Parameter(allow_leading_hyphen=True)


@Parameter(name="*", group=LOG_GROUP)
@dataclass(frozen=True)
class LogWatchOptions:
    """Which events, and how they are shown."""

    topic: Annotated[tuple[str, ...], Repeatable, Parameter(help="Only of these topics.")] = ()
    type: Annotated[tuple[str, ...], Repeatable, Parameter(help="Only of these types, such as document.indexed.v1; without a version, of every one.")] = ()
    key: Annotated[str | None, Parameter(help="Only with this key.")] = None
    document: Annotated[UUID | None, Parameter(help="Only what is said of this document behind the door.")] = None
    run: Annotated[UUID | None, Parameter(help="Only of this question.")] = None
    begin: Annotated[
        str | None, TimeArgument, Parameter(name="--from", help="begin, now, a place that was told, a time, or so long ago as -15m.  [default: now]")
    ] = None
    until: Annotated[str | None, TimeArgument, Parameter(help="now, a time, or so long ago; then it ends.  [default: never]")] = None
    format: Annotated[
        str | None,
        Parameter(
            help="Of a line: %t topic, %p partition, %o offset, %k key, %y type, %d document, %i id, %s source, %a when it was appended, %c its place, %v what is told of its payload, %% a percent sign."
        ),
    ] = None


@Parameter(name="*", group=FOLDER_GROUP)
@dataclass(frozen=True)
class FolderWatchOptions:
    """What is taken in, and as what."""

    name: Annotated[str | None, Parameter(help="What the source is called.  [default: after the folder]")] = None
    glob: Annotated[str | None, Parameter(help="Only files with such names.  [default: *]")] = None
    every: Annotated[float | None, Parameter(help="Seconds between two looks.  [default: 2]", validator=Number(gt=0))] = None
    collection: Annotated[str | None, Parameter(help="Collection of its documents.")] = None
    tag: Annotated[tuple[str, ...], Repeatable, Parameter(help="Tags of its documents.")] = ()


DEFAULT, DEFAULT_LOG_OPTIONS, DEFAULT_FOLDER_OPTIONS = RemoteOptions(), LogWatchOptions(), FolderWatchOptions()


def watch(
    path: Path | None = None,
    /,
    *,
    log: LogWatchOptions = DEFAULT_LOG_OPTIONS,
    folder: FolderWatchOptions = DEFAULT_FOLDER_OPTIONS,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Show events as the log takes them; with a PATH, take in that folder, and what changes in it. Until Ctrl-C.

    What happens in a folder while nobody watches is taken in the next time. With --json one object a line.

    Parameters
    ----------
    path
        The folder. Without one, the log is shown.
    """
    if path is None:
        _reject_options(folder, "is about a folder", "Name the folder: anabranch watch PATH.")
        return asyncio.run(_watch_log(log, common))
    _reject_options(log, "is about the log", "Leave the PATH out to watch the log.")
    return _watch_folder(path, folder, common)


def _reject_options(options: LogWatchOptions | FolderWatchOptions, problem: str, remedy: str) -> None:
    """What would do nothing. Raises ConfigurationError."""
    set_options = [option.name for option in fields(options) if getattr(options, option.name)]
    if set_options:
        raise ConfigurationError(f"--{'from' if set_options[0] == 'begin' else set_options[0]} {problem}", remedy=remedy)


async def _watch_log(options: LogWatchOptions, common: RemoteOptions) -> int:
    from anabranch.cli.watch_log import EventFilter, make_entry_printer, parse_end, parse_start, watch_log

    now = datetime.now(UTC)
    after, since = parse_start(options.begin, now)
    topics = options.topic or (("queries",) if options.run else ())
    keys = tuple(str(key) for key in (options.key, options.run) if key is not None)
    document = str(options.document) if options.document else None
    event_filter = EventFilter(after, since, parse_end(options.until, now), topics, options.type, keys, document)
    return await watch_log(event_filter, make_entry_printer(options.format, as_json=common.is_json), common)


def _watch_folder(path: Path, options: FolderWatchOptions, common: RemoteOptions) -> int:
    from anabranch.cli.watch_folder import to_source_name, watch_folder

    folder = path.resolve()
    if not folder.is_dir():
        raise NotFound(f"there is no folder {path}", remedy="Name a folder; `anabranch ingest` takes single files.")
    name = options.name or to_source_name(folder)
    definition = {"kind": "folder", "path": str(folder), "glob": options.glob or "*", "every_s": options.every or 2.0}
    return asyncio.run(watch_folder(name, {"name": name, "takes": definition, "collection": options.collection, "tags": list(options.tag)}, common))
