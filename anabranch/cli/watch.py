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

from anabranch.cli.options import Remote
from schemas.errors import ConfigurationError, NotFound

OF_THE_LOG, OF_A_FOLDER = Group("Of the log", sort_key=1), Group("Of a folder", sort_key=2)
Several = Parameter(negative="")
Moment = Parameter(allow_leading_hyphen=True)


@Parameter(name="*", group=OF_THE_LOG)
@dataclass(frozen=True)
class OfTheLog:
    """Which events, and how they are shown."""

    topic: Annotated[tuple[str, ...], Several, Parameter(help="Only of these topics.")] = ()
    type: Annotated[tuple[str, ...], Several, Parameter(help="Only of these types, such as document.indexed.v1; without a version, of every one.")] = ()
    key: Annotated[str | None, Parameter(help="Only with this key.")] = None
    document: Annotated[UUID | None, Parameter(help="Only what is said of this document behind the door.")] = None
    run: Annotated[UUID | None, Parameter(help="Only of this question.")] = None
    begin: Annotated[
        str | None, Moment, Parameter(name="--from", help="begin, now, a place that was told, a time, or so long ago as -15m.  [default: now]")
    ] = None
    until: Annotated[str | None, Moment, Parameter(help="now, a time, or so long ago; then it ends.  [default: never]")] = None
    format: Annotated[
        str | None,
        Parameter(
            help="Of a line: %t topic, %p partition, %o offset, %k key, %y type, %d document, %i id, %s source, %a when it was appended, %c its place, %v what is told of its payload, %% a percent sign."
        ),
    ] = None


@Parameter(name="*", group=OF_A_FOLDER)
@dataclass(frozen=True)
class OfAFolder:
    """What is taken in, and as what."""

    name: Annotated[str | None, Parameter(help="What the source is called.  [default: after the folder]")] = None
    glob: Annotated[str | None, Parameter(help="Only files with such names.  [default: *]")] = None
    every: Annotated[float | None, Parameter(help="Seconds between two looks.  [default: 2]", validator=Number(gt=0))] = None
    collection: Annotated[str | None, Parameter(help="Collection of its documents.")] = None
    tag: Annotated[tuple[str, ...], Several, Parameter(help="Tags of its documents.")] = ()


HERE, EVERY_EVENT, EVERY_FILE = Remote(), OfTheLog(), OfAFolder()


def watch(path: Path | None = None, /, *, log: OfTheLog = EVERY_EVENT, folder: OfAFolder = EVERY_FILE, common: Remote = HERE) -> int:
    """Show events as the log takes them; with a PATH, take in that folder, and what changes in it. Until Ctrl-C.

    What happens in a folder while nobody watches is taken in the next time. With --json one object a line.

    Parameters
    ----------
    path
        The folder. Without one, the log is shown.
    """
    if path is None:
        _refuse(folder, "is about a folder", "Name the folder: anabranch watch PATH.")
        return asyncio.run(_log(log, common))
    _refuse(log, "is about the log", "Leave the PATH out to watch the log.")
    return _folder(path, folder, common)


def _refuse(options: OfTheLog | OfAFolder, what: str, remedy: str) -> None:
    """What would do nothing. Raises ConfigurationError."""
    given = [option.name for option in fields(options) if getattr(options, option.name)]
    if given:
        raise ConfigurationError(f"--{'from' if given[0] == 'begin' else given[0]} {what}", remedy=remedy)


async def _log(options: OfTheLog, common: Remote) -> int:
    from anabranch.cli.watch_log import Wanted, beginning, end, shown, watch_log

    now = datetime.now(UTC)
    after, since = beginning(options.begin, now)
    topics = options.topic or (("queries",) if options.run else ())
    keys = tuple(str(key) for key in (options.key, options.run) if key is not None)
    document = str(options.document) if options.document else None
    wanted = Wanted(after, since, end(options.until, now), topics, options.type, keys, document)
    return await watch_log(wanted, shown(options.format, as_json=common.json), common)


def _folder(path: Path, options: OfAFolder, common: Remote) -> int:
    from anabranch.cli.watch_folder import source_name, watch_folder

    place = path.resolve()
    if not place.is_dir():
        raise NotFound(f"there is no folder {path}", remedy="Name a folder; `anabranch ingest` takes single files.")
    called = options.name or source_name(place)
    takes = {"kind": "folder", "path": str(place), "glob": options.glob or "*", "every_s": options.every or 2.0}
    return asyncio.run(watch_folder(called, {"name": called, "takes": takes, "collection": options.collection, "tags": list(options.tag)}, common))
