"""`anabranch topics`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cyclopts import App

from anabranch.cli.options import Common
from anabranch.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from anabranch.composition.storage import Storage

app = App(name="topics", help="The log: topics, and how far each stage has read.", result_action="return_value")
DEFAULT = Common()


@app.command(name="list")
def list_topics(*, common: Common = DEFAULT) -> int:
    """Topics, with their partitions and how many records they hold."""

    async def gather(storage: Storage) -> list[dict[str, Any]]:
        return [await _topic(storage, topic) for topic in _names()]

    return _report(common, "topics", gather, ("topic", "partitions", "records"))


@app.command
def describe(topic: str, /, *, common: Common = DEFAULT) -> int:
    """A topic's partitions and the facts it carries.

    Parameters
    ----------
    topic
        Its name, without prefix.
    """
    from schemas.errors import NotFound
    from schemas.events import declared

    if topic not in _names():
        raise NotFound(f"no topic {topic!r}", remedy=f"The topics are {', '.join(_names())}.")
    events = [event.event_type() for event in declared() if event.topic == topic]

    async def gather(storage: Storage) -> list[dict[str, Any]]:
        ends = await storage.log.ends(topic)
        return [{"partition": partition, "first": first, "next": following} for partition, (first, following) in sorted(ends.items())]

    say(f"{topic}: {', '.join(events) or 'no events yet'}", quiet=common.quiet)
    return _report(common, "partitions", gather, ("partition", "first", "next"))


@app.command
def create(*, common: Common = DEFAULT) -> int:
    """Create the topics that are missing."""

    async def gather(storage: Storage) -> list[dict[str, Any]]:
        return [await _topic(storage, topic) for topic in _names()]

    return _report(common, "topics", gather, ("topic", "partitions", "records"))


@app.command
def lag(*, common: Common = DEFAULT) -> int:
    """How far each stage has read, and what holds the log back."""

    async def gather(storage: Storage) -> list[dict[str, Any]]:
        from anabranch.lag import stage_lags

        return await stage_lags(storage)

    return _report(common, "stages", gather, ("stage", "topic", "lag", "acknowledged", "end"), holder=True)


async def _topic(storage: Storage, topic: str) -> dict[str, Any]:
    ends = await storage.log.ends(topic)
    return {"topic": topic, "partitions": len(ends), "records": await storage.records(topic)}


def _names() -> list[str]:
    from streams.topics import partition_counts

    return list(partition_counts(1))


def _report(common: Common, name: str, gather: Any, columns: tuple[str, ...], *, holder: bool = False) -> int:
    from anabranch.cli.storing import database_url
    from anabranch.composition.storage import prepare_storage
    from sql.inspection import horizon_holder

    async def run() -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        settings = common.settings()
        async with database_url(common, settings) as dsn, prepare_storage(settings, dsn, pool_size=3, name="anabranch topics") as storage:
            return list(await gather(storage)), await horizon_holder(dsn) if holder and settings.log_kind == "postgres" else None

    rows, held = asyncio.run(run())
    if common.json:
        print_json({name: rows, **({"horizon": held} if holder else {})})
        return 0
    print_table(columns, [[row.get(column) for column in columns] for row in rows])
    if held:
        say(f"the log is held back by {held['application']} (pid {held['pid']}, {held['state']}, {held['seconds']} s)", quiet=common.quiet)
    return 0
