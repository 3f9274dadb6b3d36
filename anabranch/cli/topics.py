"""`anabranch topics`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import App, Parameter

from anabranch.cli.exits import FAILED, OK
from anabranch.cli.options import Local
from anabranch.cli.output import print_line, print_table, say

if TYPE_CHECKING:
    from anabranch.composition.storage import Storage
    from anabranch.settings import Settings

    Gather = Callable[[Storage], Awaitable[list[dict[str, Any]]]]
    Database = Callable[[Settings], AbstractAsyncContextManager[str]]

T = TypeVar("T")
WATCH_S = 2.0
LOCK_WAIT_S = 2.0
"""So long a table is waited for that somebody has locked; then who that is is told."""

app = App(name="topics", help="The log: topics, and how far each stage has read.", result_action="return_value")
DEFAULT = Local()


@app.command(name="list")
def list_topics(*, common: Local = DEFAULT) -> int:
    """Topics, with their partitions and how many records they hold."""
    return _report(common, "topics", _all, ("topic", "partitions", "records"))


@app.command
def describe(topic: str, /, *, common: Local = DEFAULT) -> int:
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
def create(*, common: Local = DEFAULT) -> int:
    """Create the topics that are missing."""
    from anabranch.cli.storing import beginning_database_url

    return _report(common, "topics", _all, ("topic", "partitions", "records"), database=beginning_database_url)


@app.command
def verify(*, common: Local = DEFAULT) -> int:
    """Compare the topics with what they must be: there, in as many partitions, kept as long as that, stamped by Kafka; those of generations too. Exits 1 where one differs.

    How long a topic is kept that the cluster does not let us look at is not known, and said; it is no difference.
    """
    from anabranch.composition.topics import compared_topics, unseen_settings

    found = asyncio.run(compared_topics(common.settings()))
    if common.json:
        common.show({"topics": [asdict(one) for one in found]})
    else:
        columns = ("topic", "partitions", "wanted", "settings", "problem")
        print_table(columns, [[getattr(one, column) for column in columns] for one in found])
    for one in found:
        if one.remedy:
            say(f"{one.topic}: {one.remedy}", quiet=common.quiet)
    if unseen := unseen_settings(found):
        say(". ".join(unseen), quiet=common.quiet)
    return FAILED if any(one.problem for one in found) else OK


@app.command
def acls(
    *,
    api: str = "User:anabranch-api",
    worker: str = "User:anabranch-worker",
    producer: str = "User:producer",
    admin: str = "User:anabranch-admin",
    commands: Annotated[bool, Parameter(negative="")] = False,
    common: Local = DEFAULT,
) -> int:
    """Print the ACLs that the Kafka cluster needs. Changes nothing.

    Parameters
    ----------
    api
        Principal of the API.
    worker
        Principal of the workers.
    producer
        Principal of producers on topic `raw`. A producer with a topic `raw.NAME` is `User:NAME`.
    admin
        Principal that creates topics and runs `doctor`.
    commands
        Print commands for Kafka's own `kafka-acls.sh`.
    """
    from anabranch.composition.acls import Principals, as_commands, required_grants

    settings = common.settings()
    grants = required_grants(settings, Principals(api, worker, producer, admin))
    if common.json:
        common.show({"acls": [asdict(grant) for grant in grants]})
    elif commands:
        print("\n".join(as_commands(grants, settings.kafka.bootstrap_servers or "BOOTSTRAP_SERVER")))
    else:
        columns = ("principal", "resource", "name", "pattern", "operations")
        print_table(columns, [[" ".join(value) if isinstance(value := getattr(grant, column), tuple) else value for column in columns] for grant in grants])
    return OK


@app.command
def lag(*, watch: Annotated[bool, Parameter(negative="")] = False, common: Local = DEFAULT) -> int:
    """How far each reader of every generation has read, how long what it has not read waits, and why: who holds the log back, or tables locked, included.

    Parameters
    ----------
    watch
        Again every two seconds, until Ctrl-C; with --json one object a line.
    """
    from anabranch.background.stuck import HELD_S, explained_lags
    from sql.inspection import held_locks

    async def show(storage: Storage) -> None:
        while True:
            lines, horizon = await explained_lags(storage)
            _print_lag(common, lines, horizon, await held_locks(storage.dsn, HELD_S), print_line if watch else common.show)
            if not watch:
                return
            sys.stdout.flush()
            await asyncio.sleep(WATCH_S)

    asyncio.run(_with_storage(common, show))
    return 0


def _print_lag(
    common: Local, stages: list[dict[str, Any]], held: dict[str, Any] | None, locks: list[dict[str, Any]], as_json: Callable[[dict[str, Any]], None]
) -> None:
    if common.json:
        as_json({"stages": stages, "horizon": held, "locks": locks})
        return
    from anabranch.background.stuck import held_back, let_go, locked_by

    columns = ("stage", "generation", "group", "topic", "lag", "oldest_seconds", "acknowledged", "end", "why")
    print_table(columns, [[stage[column] for column in columns] for stage in stages])
    for remedy in dict.fromkeys([*(stage["remedy"] for stage in stages if stage["remedy"]), *map(let_go, locks)]):
        say(f"  → {remedy}", quiet=common.quiet)
    for told in [*([held_back(held)] if held else []), *map(locked_by, locks)]:
        say(told, quiet=common.quiet)


async def _all(storage: Storage) -> list[dict[str, Any]]:
    return [await _topic(storage, topic) for topic in (*_names(), *storage.producer_topics)]


async def _topic(storage: Storage, topic: str) -> dict[str, Any]:
    ends = await storage.log.ends(topic)
    return {"topic": topic, "partitions": len(ends), "records": await storage.records(topic)}


def _names() -> list[str]:
    from streams.topics import partition_counts

    return list(partition_counts(1))


def _report(common: Local, name: str, gather: Gather, columns: tuple[str, ...], *, database: Database | None = None) -> int:
    rows = asyncio.run(_with_storage(common, gather, database))
    if common.json:
        common.show({name: rows})
    else:
        print_table(columns, [[row[column] for column in columns] for row in rows])
    return 0


async def _with_storage(common: Local, work: Callable[[Storage], Awaitable[T]], database: Database | None = None) -> T:
    from anabranch.background.stuck import named_lock
    from anabranch.cli.storing import database_url
    from anabranch.composition.storage import prepare_storage
    from schemas.errors import TransientError

    settings = common.settings()
    async with (database or database_url)(settings) as dsn:
        try:
            async with prepare_storage(settings, dsn, pool_size=3, name="anabranch topics", lock_wait_s=LOCK_WAIT_S) as storage:
                return await work(storage)
        except TransientError as error:
            raise await named_lock(error, dsn) from error
