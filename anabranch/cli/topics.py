"""`anabranch topics`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

from cyclopts import App, Parameter

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.errors import FAILED, OK
from anabranch.cli.options import CommonOptions, LocalOptions, RemoteOptions
from anabranch.cli.output import print_json_line, print_stderr, print_table

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient
    from anabranch.config.settings import Settings
    from services.storage import Storage

    FetchStages = Callable[[], Awaitable[dict[str, Any]]]
    OpenDatabase = Callable[[Settings], AbstractAsyncContextManager[str]]

T = TypeVar("T")
WATCH_INTERVAL_S = 2.0
LOCK_WAIT_S = 2.0
"""Longest wait for a locked table before the lock holder is reported."""

app = App(
    name="topics", help="Inspect topics, consumer lag and Kafka ACLs.", result_action="return_value"
)
DEFAULT = LocalOptions()
REMOTE = RemoteOptions()


@app.command(name="list")
def list_topics(*, common: RemoteOptions = REMOTE) -> int:
    """List topics with their partitions and number of records."""
    topics = (
        get("/v1/topics", common)["items"]
        if common.server
        else asyncio.run(_run_with_storage(common, _fetch_topics))
    )
    return _print_topics(topics, common)


def _print_topics(topics: list[dict[str, Any]], common: CommonOptions) -> int:
    columns = ("topic", "partitions", "records")
    return common.show({"topics": topics}, lambda: common.print_items(topics, columns))


@app.command
def describe(topic: str, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the partitions and event types of a topic.

    Parameters
    ----------
    topic
        Topic name without prefix.
    """
    from services.monitoring.overview import describe_topic

    async def fetch(storage: Storage) -> dict[str, Any]:
        return await describe_topic(storage, topic)

    details = (
        get(f"/v1/topics/{quote(topic, safe='')}", common)
        if common.server
        else asyncio.run(_run_with_storage(common, fetch))
    )
    event_types = ", ".join(details["event_types"]) or "no events yet"
    print_stderr(f"{topic}: {event_types}", quiet=common.quiet)
    partitions = details["partitions"]
    columns = ("partition", "first", "next")
    return common.show({"partitions": partitions}, lambda: common.print_items(partitions, columns))


@app.command
def create(*, common: LocalOptions = DEFAULT) -> int:
    """Create missing topics."""
    from anabranch.cli.database import open_or_initialize_database

    topics = asyncio.run(_run_with_storage(common, _fetch_topics, open_or_initialize_database))
    return _print_topics(topics, common)


@app.command
def verify(*, common: LocalOptions = DEFAULT) -> int:
    """Verify existence, partitions, retention and timestamp type of all topics. Exits 1 if
    one differs.

    Settings that the cluster does not permit to read are reported, but do not count as a
    difference.
    """
    from anabranch.kafka.topic_checks import check_topics, explain_unreadable_settings
    from anabranch.process.logs import configure_logs

    settings = common.load_settings()
    configure_logs(settings.logging)  # to stderr: unconfigured, structlog prints to stdout
    comparisons = asyncio.run(check_topics(settings))
    rows = [asdict(comparison) for comparison in comparisons]
    columns = ("topic", "partitions", "wanted", "settings", "problem")
    common.show({"topics": rows}, lambda: common.print_items(rows, columns))
    for comparison in comparisons:
        if comparison.remedy:
            print_stderr(f"{comparison.topic}: {comparison.remedy}", quiet=common.quiet)
    if unreadable_settings := explain_unreadable_settings(comparisons):
        print_stderr(". ".join(unreadable_settings), quiet=common.quiet)
    return FAILED if any(comparison.problem for comparison in comparisons) else OK


@app.command
def acls(
    *,
    api: str = "User:anabranch-api",
    worker: str = "User:anabranch-worker",
    producer: str = "User:producer",
    admin: str = "User:anabranch-admin",
    commands: Annotated[bool, Parameter(negative="")] = False,
    common: LocalOptions = DEFAULT,
) -> int:
    """Print the ACLs that the Kafka cluster needs, without changing it.

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
        Print commands for Kafka's `kafka-acls.sh`.
    """
    from anabranch.kafka.acls import KafkaPrincipals, build_required_grants, format_commands

    settings = common.load_settings()
    grants = build_required_grants(settings, KafkaPrincipals(api, worker, producer, admin))
    if common.is_json:
        common.print_result({"acls": [asdict(grant) for grant in grants]})
    elif commands:
        print(
            "\n".join(
                format_commands(grants, settings.kafka.bootstrap_servers or "BOOTSTRAP_SERVER")
            )
        )
    else:
        columns = ("principal", "resource", "name", "pattern", "operations")
        print_table(
            columns,
            [
                [
                    " ".join(value) if isinstance(value := getattr(grant, column), tuple) else value
                    for column in columns
                ]
                for grant in grants
            ],
        )
    return OK


@app.command
def lag(
    *, watch: Annotated[bool, Parameter(negative="")] = False, common: RemoteOptions = REMOTE
) -> int:
    """Show each consumer's lag, the age of its oldest unread event, and the cause.

    The table has one line for a stage of a generation; with --json all consumer groups are listed.

    Parameters
    ----------
    watch
        Refresh every two seconds until Ctrl-C; with --json, print one object per line.
    """
    print_as_json = print_json_line if watch else common.print_result

    async def show(fetch: FetchStages) -> None:
        while True:
            stages = await fetch()
            _print_lag(common, stages["items"], stages["horizon"], stages["locks"], print_as_json)
            if not watch:
                return
            sys.stdout.flush()
            await asyncio.sleep(WATCH_INTERVAL_S)

    async def show_tables(storage: Storage) -> None:
        from services.monitoring.overview import describe_stages

        await show(partial(describe_stages, storage))

    async def show_server(client: ApiClient) -> None:
        await show(partial(client.get, "/v1/stages"))

    if common.server:
        call_api(common, show_server)
    else:
        asyncio.run(_run_with_storage(common, show_tables))
    return 0


def _print_lag(
    common: CommonOptions,
    stages: list[dict[str, Any]],
    horizon: dict[str, Any] | None,
    locks: list[dict[str, Any]],
    print_as_json: Callable[[dict[str, Any]], None],
) -> None:
    if common.is_json:
        print_as_json({"stages": stages, "horizon": horizon, "locks": locks})
        return
    from services.monitoring.lag_diagnosis import (
        format_horizon_holder,
        format_lock_holder,
        suggest_release,
    )

    columns = (
        *("stage", "generation", "group", "topic", "lag", "oldest_seconds", "acknowledged"),
        *("end", "reason"),
    )
    common.print_items(_omit_idle(stages), columns, optional=("group", "oldest_seconds"))
    for remedy in dict.fromkeys(
        [*(stage["remedy"] for stage in stages if stage["remedy"]), *map(suggest_release, locks)]
    ):
        print_stderr(f"  → {remedy}", quiet=common.quiet)
    for note in [
        *([format_horizon_holder(horizon)] if horizon else []),
        *map(format_lock_holder, locks),
    ]:
        print_stderr(note, quiet=common.quiet)


def _omit_idle(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep one line of a stage that two groups serve, unless both have something to read.

    After a rebuild a generation continues the group of the one before beside its own.
    """
    largest: dict[tuple[str, ...], int] = {}
    keys = [tuple(str(line[name]) for name in ("stage", "generation", "topic")) for line in lines]
    for number, (key, line) in enumerate(zip(keys, lines, strict=True)):
        if key not in largest or (line["lag"] or 0) > (lines[largest[key]]["lag"] or 0):
            largest[key] = number
    return [
        line
        for number, (key, line) in enumerate(zip(keys, lines, strict=True))
        if largest[key] == number or line["lag"]
    ]


async def _fetch_topics(storage: Storage) -> list[dict[str, Any]]:
    from services.monitoring.overview import list_topics

    return await list_topics(storage)


async def _run_with_storage(
    common: CommonOptions,
    work: Callable[[Storage], Awaitable[T]],
    open_database_url: OpenDatabase | None = None,
) -> T:
    from anabranch.cli.database import open_command_database
    from anabranch.composition.storage import prepare_storage
    from schemas.errors import TransientError
    from services.monitoring.lag_diagnosis import add_lock_holder

    settings = common.load_settings()
    async with (open_database_url or open_command_database)(settings) as dsn:
        try:
            async with prepare_storage(
                settings, dsn, pool_size=3, name="anabranch topics", lock_wait_s=LOCK_WAIT_S
            ) as storage:
                return await work(storage)
        except TransientError as error:
            raise await add_lock_holder(error, dsn) from error
