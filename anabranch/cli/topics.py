"""`anabranch topics` and `anabranch kafka`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.errors import FAILED, OK, UNREACHABLE
from anabranch.cli.options import (
    COMMON,
    LOCAL,
    REMOTE,
    CommonOptions,
    LocalOptions,
    RemoteOptions,
    make_group,
)
from anabranch.cli.output import print_json_line
from schemas.errors import TransientError

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient
    from services.storage import Storage

    FetchStages = Callable[[], Awaitable[dict[str, Any]]]

T = TypeVar("T")
WATCH_INTERVAL_S = 2.0
LOCK_WAIT_S = 2.0
"""Longest wait for a locked table before the lock holder is reported."""

app = make_group("topics")


@app.command(name="list")
def list_topics(*, common: RemoteOptions = REMOTE) -> int:
    """List topics with their partitions and number of records."""
    topics = get("/v1/topics", common)["items"] if common.server else _fetch_topics(common)
    return _print_topics(topics, common)


def _fetch_topics(common: CommonOptions, *, may_create: bool = False) -> list[dict[str, Any]]:
    from services.monitoring.overview import list_topics

    return asyncio.run(_run_with_storage(common, list_topics, may_create=may_create))


def _print_topics(topics: list[dict[str, Any]], common: CommonOptions) -> int:
    columns = ("topic", "partitions", "records")
    return common.show({"topics": topics}, lambda: common.print_items(topics, columns))


@app.command
def describe(topic: str, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the partitions and event types of a topic.

    Args:
        topic: Topic name without prefix.
    """
    from services.monitoring.overview import describe_topic

    details = (
        get(f"/v1/topics/{quote(topic, safe='')}", common)
        if common.server
        else asyncio.run(_run_with_storage(common, partial(describe_topic, topic=topic)))
    )
    event_types = ", ".join(details["event_types"]) or "no events yet"
    common.print_note(f"{topic}: {event_types}")
    partitions = details["partitions"]
    columns = ("partition", "first", "next")
    return common.show({"partitions": partitions}, lambda: common.print_items(partitions, columns))


@app.command
def create(*, common: LocalOptions = LOCAL) -> int:
    """Create missing topics."""
    return _print_topics(_fetch_topics(common, may_create=True), common)


@app.command
def verify(*, common: LocalOptions = LOCAL) -> int:
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
            common.print_note(f"{comparison.topic}: {comparison.remedy}")
    if unreadable_settings := explain_unreadable_settings(comparisons):
        common.print_note(". ".join(unreadable_settings))
    return FAILED if any(comparison.problem for comparison in comparisons) else OK


@app.command
def acls(
    *,
    api: str = "User:anabranch-api",
    worker: str = "User:anabranch-worker",
    producer: str = "User:producer",
    admin: str = "User:anabranch-admin",
    commands: bool = False,
    common: LocalOptions = LOCAL,
) -> int:
    """Print the ACLs that the Kafka cluster needs, without changing it.

    Args:
        api: Principal of the API.
        worker: Principal of the workers.
        producer: Principal of producers on topic `raw`. A producer with a topic `raw.NAME` is
            `User:NAME`.
        admin: Principal that creates topics and runs `doctor`.
        commands: Print commands for Kafka's `kafka-acls.sh`.
    """
    from anabranch.kafka.topic_checks import KafkaPrincipals, build_required_grants, format_commands

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
        common.print_table(
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
def lag(*, watch: bool = False, common: RemoteOptions = REMOTE) -> int:
    """Show each consumer's lag, the age of its oldest unread event, and the cause.

    The table has one line for a stage of a generation; with --json all consumer groups are listed.

    Args:
        watch: Refresh every two seconds until Ctrl-C; with --json, print one object per line.
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
    common.print_items(
        _omit_idle(stages),
        columns,
        optional=("group", "oldest_seconds", "end", "acknowledged", "topic"),
    )
    for remedy in dict.fromkeys(
        [*(stage["remedy"] for stage in stages if stage["remedy"]), *map(suggest_release, locks)]
    ):
        common.print_note(f"  → {remedy}")
    for note in [
        *([format_horizon_holder(horizon)] if horizon else []),
        *map(format_lock_holder, locks),
    ]:
        common.print_note(note)


def _omit_idle(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep one line of a stage that two groups serve, unless both have something to read.

    After a rebuild a generation continues the group of the one before beside its own.
    """
    largest: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in lines:
        key = tuple(str(line[name]) for name in ("stage", "generation", "topic"))
        if key not in largest or (line["lag"] or 0) > (largest[key]["lag"] or 0):
            largest[key] = line
    return [line for line in lines if line["lag"] or any(line is kept for kept in largest.values())]


async def _run_with_storage(
    common: CommonOptions, work: Callable[[Storage], Awaitable[T]], *, may_create: bool = False
) -> T:
    from anabranch.cli.database import open_command_database
    from anabranch.composition.storage import prepare_storage
    from services.monitoring.lag_diagnosis import add_lock_holder

    settings = common.load_settings()
    async with open_command_database(settings, may_create=may_create) as dsn:
        try:
            async with prepare_storage(
                settings, dsn, pool_size=3, name="anabranch topics", lock_wait_s=LOCK_WAIT_S
            ) as storage:
                return await work(storage)
        except TransientError as error:
            raise await add_lock_holder(error, dsn) from error


kafka = make_group("kafka")
KAFKA_FOLDER = "kafka"


@kafka.command
def start(
    *, port: int = 0, heap_mb: int = 512, jars: Path | None = None, common: CommonOptions = COMMON
) -> int:
    """Start the node of the data folder in the background.

    The first start downloads Kafka's jars with Maven, which takes about a minute.

    Args:
        port: Port on the loopback address; 0 reuses the previous one or picks a free one.
        heap_mb: Heap size of the JVM in MiB.
        jars: Folder with Kafka's jars. [default: in the user's cache]
    """
    from streams.kafka.broker import Broker

    broker = Broker(_resolve_folder(common), port=port, heap_mb=heap_mb, jars_dir=jars)
    common.print_note("starting Kafka…")
    asyncio.run(broker.start())
    servers = broker.bootstrap_servers
    return common.show(
        {"running": True, "bootstrap_servers": servers},
        lambda: print(f"export ANABRANCH_KAFKA__BOOTSTRAP_SERVERS={servers}"),
    )


@kafka.command
def stop(*, common: CommonOptions = COMMON) -> int:
    """Stop the node of the data folder."""
    from streams.kafka.broker import Broker

    broker = Broker(_resolve_folder(common))
    was_running = broker.status().is_running
    asyncio.run(broker.stop())
    return common.acknowledge(
        {"running": False},
        "stopped" if was_running else f"no Kafka was running in {_resolve_folder(common)}",
    )


@kafka.command
def status(*, common: CommonOptions = COMMON) -> int:
    """Show whether the node runs, and its address. Exits 7 if it does not run."""
    from streams.kafka.broker import Broker

    broker_status = Broker(_resolve_folder(common)).status()
    fields = asdict(broker_status)
    common.show(
        {"running": fields.pop("is_running"), **fields},
        lambda: print(
            f"running at {broker_status.bootstrap_servers} (pid {broker_status.pid})"
            if broker_status.is_running
            else "not running"
        ),
    )
    return OK if broker_status.is_running else UNREACHABLE


def _resolve_folder(common: CommonOptions) -> Path:
    from anabranch.process.data_folder import check_data_folder

    folder = common.load_settings().data_dir
    check_data_folder(folder)
    return folder / KAFKA_FOLDER
