"""`anabranch up`, and the two processes that it runs, which can also be run alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anabranch.cli.options import Common
from anabranch.cli.output import say

if TYPE_CHECKING:
    from anabranch.process.data_folder import Server
    from anabranch.process.supervisor import Plan

Hidden = Parameter(show=False, negative="")


def up(
    *,
    port: int | None = None,
    stages: str = "all",
    ephemeral: Annotated[bool, Parameter(negative="")] = False,
    postgres_port: int | None = None,
    ready_file: Path | None = None,
    common: Common = Common(),  # noqa: B008
) -> int:
    """Run everything in one data folder: Postgres, log, stages, API. Ctrl-C stops it.

    Parameters
    ----------
    port
        Of the API; 0 takes a free one. [default: 8420]
    stages
        Which stages run here, separated by commas; `none` for the API alone.
    ephemeral
        A new folder that is gone afterwards.
    postgres_port
        Let the embedded Postgres also listen on this port of 127.0.0.1, with a password; without it, on a Unix socket only.
    ready_file
        Written as JSON once everything answers.
    """
    from anabranch.process.logs import configure_logs
    from anabranch.process.stopping import until_stopped
    from anabranch.process.supervisor import Plan

    settings = common.settings(*([f"api.port={port}"] if port is not None else []), *([f"database.tcp={postgres_port}"] if postgres_port is not None else []))
    configure_logs(settings.logging)
    chosen = () if stages == "none" else tuple(stages.split(","))
    return asyncio.run(until_stopped(_serve(Plan(settings, common.arguments(), chosen, ephemeral), ready_file, common)))


async def _serve(plan: Plan, ready_file: Path | None, common: Common) -> None:
    from anabranch.client import ApiClient
    from anabranch.process.data_folder import write_server
    from anabranch.process.supervisor import running

    say("starting…", quiet=common.quiet)
    with _no_file(ready_file):
        async with running(plan) as (server, failed):
            async with ApiClient(server.url, server.token) as client:
                login = server.url + (await client.post("/v1/login-links", {}))["url"].removeprefix(plan.settings.api.public_url.rstrip("/"))
            _announce(server, login, plan, common)
            if ready_file is not None:
                write_server(ready_file, server)
            await failed


@contextmanager
def _no_file(path: Path | None) -> Iterator[None]:
    """None before, none after."""
    if path is None:
        yield
        return
    path.unlink(missing_ok=True)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _announce(server: Server, login: str, plan: Plan, common: Common) -> None:
    if common.json:
        common.show({name: value for name, value in asdict(server).items() if name != "token"} | {"login": login})
        return
    kept = "kept when this stops" if server.persistent else "gone when this stops"
    lines = {
        "API": server.url,
        "UI": f"{login}   (opens once, within ten minutes; `anabranch open` makes another)",
        "data": f"{server.data_dir}   ({kept})",
        "Postgres": server.database_url or "as set",
        "log": "Kafka" if server.log == "kafka" else "Postgres table",
        "stages": ", ".join(plan.stages) or "none",
        "metrics": f"{server.url}/metrics" + (f", worker: {server.worker_metrics_url}" if server.worker_metrics_url else ""),
        "profile": "default",
    }
    if server.mode == "embedded":
        lines |= _postgres_lines(server, plan)
    if server.outdated:
        lines["index"] = server.outdated
    print("\n".join(f"{name:9} {value}" for name, value in lines.items()), flush=True)
    say("Ctrl-C stops everything.", quiet=common.quiet)


def _postgres_lines(server: Server, plan: Plan) -> dict[str, str]:
    """Return notes about the embedded Postgres: the password file for TCP, and tables outside the data folder."""
    from anabranch.process.database import FOLDER
    from sql.embedded import DATABASE, PASSWORD_FILE, ROLE, tables_elsewhere

    root = Path(server.data_dir) / FOLDER
    elsewhere = tables_elsewhere(root)
    lines = {}
    if tcp := plan.settings.database.tcp:
        lines["TCP"] = f"postgresql://{ROLE}@127.0.0.1:{tcp}/{DATABASE}?passfile={(elsewhere or root) / PASSWORD_FILE}"
    if elsewhere:
        lines["tables"] = f"{elsewhere}   (outside the data folder; `anabranch down --erase` deletes both)"
    return lines


def api(
    *,
    host: str | None = None,
    port: int | None = None,
    attached: Annotated[bool, Hidden] = False,
    common: Common = Common(),  # noqa: B008
) -> int:
    """Run the HTTP API alone, on the database and log that the settings name.

    Parameters
    ----------
    host
        Address to listen on. [default: 127.0.0.1]
    port
        0 takes a free one. [default: 8420]
    attached
        Stop when stdin ends.
    """
    from anabranch.process.api_process import serve_api
    from anabranch.process.logs import configure_logs
    from anabranch.process.stopping import leave, until_stopped

    settings = common.settings(*([f"api.port={port}"] if port is not None else []), *([f"api.host={host}"] if host else []))
    configure_logs(settings.logging)
    leave(asyncio.run(until_stopped(serve_api(settings), with_parent=attached)))


def worker(
    *,
    stages: str = "all",
    metrics_port: int | None = None,
    metrics_host: str | None = None,
    attached: Annotated[bool, Hidden] = False,
    report: Annotated[Path | None, Hidden] = None,
    common: Common = Common(),  # noqa: B008
) -> int:
    """Run stages of the pipeline until Ctrl-C. Start it again elsewhere to share the work.

    Parameters
    ----------
    stages
        Names separated by commas, or `all`.
    metrics_port
        Of Prometheus metrics; 0 takes a free one. [default: 0]
    metrics_host
        Address on which metrics are served. [default: 127.0.0.1]
    attached
        Stop when stdin ends.
    report
        Written once the stages read.
    """
    from anabranch.process.logs import configure_logs
    from anabranch.process.stopping import leave, until_stopped
    from anabranch.process.worker_process import work

    settings = common.settings(
        *([f"worker.metrics_port={metrics_port}"] if metrics_port is not None else []), *([f"worker.metrics_host={metrics_host}"] if metrics_host else [])
    )
    configure_logs(settings.logging)
    leave(asyncio.run(until_stopped(work(settings, stages.split(","), report), with_parent=attached)))
