"""`anabranch up` and `down`, and the processes `api` and `worker` that `up` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anabranch.cli.errors import FAILED, OK
from anabranch.cli.options import CommonOptions, LocalOptions, Yes
from anabranch.cli.output import print_stderr

if TYPE_CHECKING:
    from anabranch.process.data_folder import ServerInfo
    from anabranch.process.fork_server import ForkServer
    from anabranch.process.supervisor import LaunchPlan
    from schemas.findings import Finding

Hidden = Parameter(show=False, negative="")


def up(
    *,
    port: int | None = None,
    stages: str = "all",
    ephemeral: Annotated[bool, Parameter(negative="")] = False,
    postgres_port: int | None = None,
    ready_file: Path | None = None,
    open_browser: Annotated[bool, Parameter(name="--open", negative="")] = False,
    sample: Annotated[bool, Parameter(negative="")] = False,
    ui_dev: Annotated[bool, Parameter(negative="")] = False,
    common: CommonOptions = CommonOptions(),  # noqa: B008
) -> int:
    """Run everything in one data folder: Postgres, log, stages, API. Runs until Ctrl-C.

    Parameters
    ----------
    port
        Port of the API; 0 picks a free one. [default: 8420]
    stages
        Stages to run, comma-separated; `none` runs the API alone.
    ephemeral
        Use a temporary data folder and delete it on exit.
    postgres_port
        Port of 127.0.0.1 for the embedded Postgres, with a password. [default: a Unix socket only]
    ready_file
        File to write as JSON once everything is ready.
    open_browser
        Open the web UI in a browser, signed in.
    sample
        Ingest the sample documents.
    ui_dev
        Also serve the web UI from its sources, for those who change it.
    """
    from anabranch.process.fork_server import ForkServer

    if ui_dev:
        from anabranch.process.ui_dev_server import check_ui_sources

        check_ui_sources()
    extras = UpExtras(open_browser, sample, ui_dev)

    # First: it imports the modules of the children meanwhile.
    with ForkServer() as fork_server:
        from anabranch.process.logs import configure_logs
        from anabranch.process.shutdown import run_until_stopped
        from anabranch.process.supervisor import LaunchPlan

        settings = common.load_settings(
            *([f"api.port={port}"] if port is not None else []),
            *([f"database.tcp={postgres_port}"] if postgres_port is not None else []),
        )
        configure_logs(settings.logging)
        stage_names = () if stages == "none" else tuple(stages.split(","))
        plan = LaunchPlan(settings, common.to_arguments(), stage_names, ephemeral)
        return asyncio.run(
            run_until_stopped(_run_server(plan, fork_server, ready_file, extras, common))
        )


@dataclass(frozen=True)
class UpExtras:
    """Options of `up` that the server does not need."""

    open: bool
    sample: bool
    ui_dev: bool


async def _run_server(
    plan: LaunchPlan,
    fork_server: ForkServer,
    ready_file: Path | None,
    extras: UpExtras,
    common: CommonOptions,
) -> None:
    from anabranch.process.data_folder import write_server
    from anabranch.process.supervisor import run_server

    print_stderr("starting…", quiet=common.quiet)
    async with AsyncExitStack() as stack:
        if ready_file is not None:
            # Also before the start, so that the file of an earlier server does not look ready.
            ready_file.unlink(missing_ok=True)
            stack.callback(ready_file.unlink, missing_ok=True)
        server, failure = await stack.enter_async_context(run_server(plan, fork_server))
        # Here, so that the server starts before the HTTP client is imported.
        from anabranch.cli.http_client import ApiClient
        from anabranch.cli.up_extras import ingest_samples, open_browser

        async with ApiClient(server.url, server.token) as client:
            login_url = server.url + (await client.post("/v1/login-links", {}))["url"].removeprefix(
                plan.settings.api.public_url.rstrip("/")
            )
        ui_dev_url = None
        if extras.ui_dev:
            from anabranch.process.ui_dev_server import run_ui_dev_server

            ui_dev_url = await stack.enter_async_context(run_ui_dev_server(server))
        _announce(server, login_url, ui_dev_url, plan, common)
        if extras.open:
            open_browser(ui_dev_url or login_url, quiet=common.quiet)
        if extras.sample:
            # In the background: the server is ready without them.
            sample_task = asyncio.create_task(ingest_samples(server, quiet=common.quiet))
            stack.callback(sample_task.cancel)
        if ready_file is not None:
            write_server(ready_file, server)
        # Ends with an error or a cancellation only.
        await failure


def _announce(
    server: ServerInfo,
    login_url: str,
    ui_dev_url: str | None,
    plan: LaunchPlan,
    common: CommonOptions,
) -> None:
    if common.is_json:
        common.print_result(
            {name: value for name, value in asdict(server).items() if name != "token"}
            | {"login": login_url}
            | ({"ui_dev": ui_dev_url} if ui_dev_url else {})
        )
        return
    persistence = "persistent" if server.persistent else "deleted on exit"
    lines = {
        "API": server.url,
        "UI": f"{login_url}   (works once, for ten minutes; `anabranch open` prints another)",
        "data": f"{server.data_dir}   ({persistence})",
        "Postgres": server.database_url or "external",
        "log": "Kafka" if server.log == "kafka" else "Postgres table",
        "stages": ", ".join(plan.stages) or "none",
        "metrics": f"{server.url}/metrics"
        + (f", worker: {server.worker_metrics_url}" if server.worker_metrics_url else ""),
        "profile": "default",
    }
    if ui_dev_url:
        lines["UI dev"] = f"{ui_dev_url}   (from the sources in web/; it needs no login)"
    if server.mode == "embedded":
        lines |= _format_postgres_lines(server, plan)
    if server.outdated:
        lines["index"] = server.outdated
    print("\n".join(f"{name:9} {value}" for name, value in lines.items()), flush=True)
    print_stderr("Ctrl-C stops everything.", quiet=common.quiet)


def _format_postgres_lines(server: ServerInfo, plan: LaunchPlan) -> dict[str, str]:
    """Return the TCP address of the embedded Postgres, and tables outside the data folder."""
    from anabranch.process.database import POSTGRES_FOLDER
    from sql.embedded.server import DATABASE, PASSWORD_FILE, ROLE, find_relocated_tables

    root = Path(server.data_dir) / POSTGRES_FOLDER
    external_tables = find_relocated_tables(root)
    lines = {}
    if tcp := plan.settings.database.tcp:
        password_file = (external_tables or root) / PASSWORD_FILE
        lines["TCP"] = f"postgresql://{ROLE}@127.0.0.1:{tcp}/{DATABASE}?passfile={password_file}"
    if external_tables:
        lines["tables"] = (
            f"{external_tables}   (outside the data folder; `anabranch down --erase` deletes both)"
        )
    return lines


def api(
    *,
    host: str | None = None,
    port: int | None = None,
    attached: Annotated[bool, Hidden] = False,
    common: CommonOptions = CommonOptions(),  # noqa: B008
) -> int:
    """Run the HTTP API alone, on the database and log of the settings.

    Parameters
    ----------
    host
        Address to listen on. [default: 127.0.0.1]
    port
        Port to listen on; 0 picks a free one. [default: 8420]
    attached
        Read environment variables from stdin before anything else, and stop when it ends.
    """
    from anabranch.process.api_process import serve_api
    from anabranch.process.logs import configure_logs
    from anabranch.process.shutdown import read_parent_variables, run_until_stopped

    # After the imports, which take longer than the parent's start of the database.
    if attached:
        read_parent_variables()
    settings = common.load_settings(
        *([f"api.port={port}"] if port is not None else []), *([f"api.host={host}"] if host else [])
    )
    configure_logs(settings.logging)

    async def diagnose() -> Sequence[Finding]:
        # Later, because the checks import what no other request needs.
        from anabranch.doctor.checks import run_checks_of_server

        return await run_checks_of_server(settings)

    return asyncio.run(run_until_stopped(serve_api(settings, diagnose), stop_with_parent=attached))


def worker(
    *,
    stages: str = "all",
    metrics_port: int | None = None,
    metrics_host: str | None = None,
    attached: Annotated[bool, Hidden] = False,
    report: Annotated[Path | None, Hidden] = None,
    common: CommonOptions = CommonOptions(),  # noqa: B008
) -> int:
    """Run pipeline stages until Ctrl-C. Several workers share the work.

    Parameters
    ----------
    stages
        Stages to run, comma-separated, or `all`.
    metrics_port
        Port of the Prometheus metrics; 0 picks a free one. [default: 0]
    metrics_host
        Address of the Prometheus metrics. [default: 127.0.0.1]
    attached
        Read environment variables from stdin before anything else, and stop when it ends.
    report
        File to write once the stages are running.
    """
    from anabranch.process.logs import configure_logs
    from anabranch.process.shutdown import read_parent_variables, run_until_stopped
    from anabranch.process.worker_process import run_worker

    if attached:
        read_parent_variables()
    settings = common.load_settings(
        *([f"worker.metrics_port={metrics_port}"] if metrics_port is not None else []),
        *([f"worker.metrics_host={metrics_host}"] if metrics_host else []),
    )
    configure_logs(settings.logging)
    return asyncio.run(
        run_until_stopped(
            run_worker(settings, stages.split(","), report), stop_with_parent=attached
        )
    )


Flag = Parameter(negative="")
DEFAULT = LocalOptions()


def down(
    *,
    erase: Annotated[bool, Flag] = False,
    yes: Yes = False,
    common: LocalOptions = DEFAULT,
) -> int:
    """Stop the server of a data folder.

    Parameters
    ----------
    erase
        Delete the data folder afterwards: tables (also those outside it), documents and keys.
    """
    from anabranch.cli.output import confirm
    from anabranch.process.folder_removal import (
        list_removable_folders,
        remove_data_folder,
        stop_server,
    )

    settings = common.load_settings()
    paths = list_removable_folders(settings) if erase else []
    if (
        erase
        and not yes
        and not confirm(f"Delete {' and '.join(map(str, paths))} with all contents permanently?")
    ):
        return FAILED
    was_running = stop_server(settings)
    if erase:
        remove_data_folder(settings)
    if common.is_json:
        common.print_result({"stopped": was_running, "deleted": [str(path) for path in paths]})
    else:
        print_stderr(
            "stopped" if was_running else f"no server was running in {settings.data_dir}",
            quiet=common.quiet,
        )
        for path in paths:
            print(f"deleted {path}")
    return OK
