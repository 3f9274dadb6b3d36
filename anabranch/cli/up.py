"""`anabranch up` and `down`, and the processes `api` and `worker` that `up` runs."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anabranch.cli.errors import OK
from anabranch.cli.options import COMMON, LOCAL, CommonOptions, LocalOptions, Yes
from anabranch.cli.output import confirm, print_stderr
from schemas.errors import AnabranchError, NotFound

if TYPE_CHECKING:
    from anabranch.process.data_folder import ServerInfo
    from anabranch.process.fork_server import ForkServer
    from anabranch.process.supervisor import LaunchPlan
    from schemas.findings import Finding

Hidden = Parameter(show=False)
# The wheel contains the first folder.
SAMPLE_FOLDERS = (
    Path(__file__).parents[1] / "_samples",
    Path(__file__).parents[2] / "samples" / "corpus",
)
SAMPLE_TAG = "sample"
SAMPLE_TIMEOUT_S = 600.0


def up(
    *,
    port: int | None = None,
    stages: str = "all",
    ephemeral: bool = False,
    postgres_port: int | None = None,
    ready_file: Path | None = None,
    open_browser: Annotated[bool, Parameter(name="--open")] = False,
    sample: bool = False,
    local_model: bool = False,
    ui_dev: bool = False,
    common: CommonOptions = COMMON,
) -> int:
    """Run everything in one data folder: Postgres, log, stages, API. Runs until Ctrl-C.

    Args:
        port: Port of the API; 0 picks a free one. [default: 8420]
        stages: Stages to run, comma-separated; `none` runs the API alone.
        ephemeral: Use a temporary data folder and delete it on exit.
        postgres_port: Port of 127.0.0.1 for the embedded Postgres, with a password. [default: a
            Unix socket only]
        ready_file: File to write as JSON once everything is ready.
        open_browser: Open the web UI in a browser, signed in.
        sample: Ingest the sample documents.
        local_model: Write answers with the model of an Ollama, llama.cpp or vLLM server on
            127.0.0.1.
        ui_dev: Also serve the web UI from its sources, for those who change it.
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

        if local_model:
            common = _choose_local_model(common)
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


def open_browser(address: str, *, quiet: bool) -> None:
    """Open a page in the person's browser, or say that there is none."""

    def run() -> None:
        if not has_screen() or not webbrowser.open(address):
            print_stderr("no browser was found; open the link above yourself", quiet=quiet)

    # A browser may run in the foreground, and must not keep the server from stopping.
    threading.Thread(target=run, daemon=True).start()


def has_screen() -> bool:
    """Report whether a graphical browser can be opened: others do not run the web UI."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return sys.platform != "linux" or any(os.environ.get(name) for name in variables)


async def ingest_samples(server: ServerInfo, *, quiet: bool) -> None:
    """Ingest the sample documents and wait for them. The server recognizes them the next time.

    Failures are reported to stderr, and the server continues.
    """
    # Here, so that the server starts before the HTTP client is imported.
    from anabranch.cli.http_client import ApiClient
    from anabranch.cli.ingest import format_summary
    from anabranch.cli.ingest_batch import IngestBatch, expand_paths

    folder = next((folder for folder in SAMPLE_FOLDERS if folder.is_dir()), None)
    if folder is None:
        print_stderr("error: This installation contains no sample documents. Install it again.")
        return
    try:
        items, _ = expand_paths((str(folder),), glob="*", recursive=False)
        batch = IngestBatch(items, tags=(SAMPLE_TAG,), wait_s=SAMPLE_TIMEOUT_S)
        print_stderr(f"ingesting {len(items)} sample documents…", quiet=quiet)
        async with ApiClient(server.url, server.token) as client:
            await batch.run(client)
    except AnabranchError as error:
        print_stderr(f"error: sample documents: {error.detail} [{error.code}]")
        return
    print_stderr(f"sample documents: {format_summary(items)}", quiet=quiet)


def _choose_local_model(common: CommonOptions) -> CommonOptions:
    """Set the chat model to the first one that is found, unless the settings name a server."""
    from anabranch.local_models import PORTS, find_local_models
    from anabranch.process.database import POSTGRES_FOLDER

    settings = common.load_settings()
    if settings.chat.base_url:
        print_stderr(f"--local-model is ignored: chat.base_url is {settings.chat.base_url}")
        return common
    servers = asyncio.run(find_local_models())
    if not servers:
        raise NotFound(
            f"No model server answers on 127.0.0.1 at port {', '.join(map(str, PORTS))}.",
            code="NO_LOCAL_MODEL",
            remedy="Start one with a chat model, or set ANABRANCH_CHAT__BASE_URL.",
        )
    url, model = servers[0].url, settings.chat.model or servers[0].models[0]
    common.print_note(f"{model} at {url} writes the answers")
    sets = [f"chat.base_url={url}", f"chat.model={model}"]
    # A new index would be extracted by the chat model too, which takes a local one long.
    if not (settings.data_dir / POSTGRES_FOLDER).exists() and settings.extract.engine is None:
        sets.append("extract.engine=rules")
    return replace(common, set=(*common.set, *sets))


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

    common.print_note("starting…")
    async with AsyncExitStack() as stack:
        if ready_file is not None:
            # Also before the start, so that the file of an earlier server does not look ready.
            ready_file.unlink(missing_ok=True)
            stack.callback(ready_file.unlink, missing_ok=True)
        server, failure = await stack.enter_async_context(run_server(plan, fork_server))
        # Here, so that the server starts before the HTTP client is imported.
        from anabranch.cli.http_client import ApiClient

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
    api = plan.settings.api
    if api.grpc_port is not None:
        lines["gRPC"] = (
            f"{api.host}:{api.grpc_port or '…   (a free port: `grpc_started` in the log)'}"
        )
    if ui_dev_url:
        lines["UI dev"] = f"{ui_dev_url}   (from the sources in web/; it needs no login)"
    if server.mode == "embedded":
        lines |= _format_postgres_lines(server, plan)
    if server.outdated:
        lines["index"] = server.outdated
    print("\n".join(f"{name:9} {value}" for name, value in lines.items()), flush=True)
    common.print_note("Ctrl-C stops everything.")


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
    common: CommonOptions = COMMON,
) -> int:
    """Run the HTTP API alone, on the database and log of the settings.

    Args:
        host: Address to listen on. [default: 127.0.0.1]
        port: Port to listen on; 0 picks a free one. [default: 8420]
        attached: Read environment variables from stdin before anything else, and stop when it ends.
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
    common: CommonOptions = COMMON,
) -> int:
    """Run pipeline stages until Ctrl-C. Several workers share the work.

    Args:
        stages: Stages to run, comma-separated, or `all`.
        metrics_port: Port of the Prometheus metrics; 0 picks a free one. [default: 0]
        metrics_host: Address of the Prometheus metrics. [default: 127.0.0.1]
        attached: Read environment variables from stdin before anything else, and stop when it ends.
        report: File to write once the stages are running.
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


def down(*, erase: bool = False, yes: Yes = False, common: LocalOptions = LOCAL) -> int:
    """Stop the server of a data folder.

    Args:
        erase: Delete the data folder afterwards: tables (also those outside it), documents and
            keys.
    """
    from anabranch.process.folder_removal import (
        list_removable_folders,
        remove_data_folder,
        stop_server,
    )

    settings = common.load_settings()
    paths = list_removable_folders(settings) if erase else []
    if erase:
        confirm(f"Delete {' and '.join(map(str, paths))} with all contents permanently?", yes=yes)
    was_running = stop_server(settings)
    if erase:
        remove_data_folder(settings)
    if not common.print_if_json({"stopped": was_running, "deleted": [str(path) for path in paths]}):
        common.print_note(
            "stopped" if was_running else f"no server was running in {settings.data_dir}"
        )
        for path in paths:
            print(f"deleted {path}")
    return OK
