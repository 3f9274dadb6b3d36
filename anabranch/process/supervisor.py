"""`up`: run Postgres, the API and the worker as processes, and wait until they are ready."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeVar

import httpx2
import structlog

from anabranch.config.settings import Settings
from anabranch.process.data_folder import (
    SERVER_FILE,
    UP_LOG_FILE,
    ServerInfo,
    check_data_folder,
    check_not_in_use,
    has_killed_server,
    lock_folder,
    make_folder,
    store_log_kind,
    write_server,
)
from anabranch.process.database import open_database, strip_password
from anabranch.process.fork_server import STDERR_FD, ForkedProcess, ForkServer
from anabranch.process.ingress_settings import check_ingress_settings
from anabranch.process.logs import configure_logs
from anabranch.process.tcp_ports import find_free_port, wait_for_free_port
from schemas.errors import FatalError

PROGRESS_INTERVAL_S = 10.0
POLL_S = 0.03


async def wait_until_ready(url: str, report: Path | None) -> dict[str, str | None]:
    """Wait for API and worker; returns the worker's report."""
    loop = asyncio.get_running_loop()
    reported_at = loop.time()
    # HTTP on this machine needs no certificates, which take 30 ms to read.
    async with httpx2.AsyncClient(timeout=5, verify=False) as client:
        while missing := await _fetch_missing(client, f"{url}/readyz"):
            if loop.time() - reported_at > PROGRESS_INTERVAL_S:
                reported_at = loop.time()
                log.info("startup_waiting", missing=missing)
            await asyncio.sleep(POLL_S)
    while report is not None and not report.exists():
        await asyncio.sleep(POLL_S)
    return dict(json.loads(report.read_text())) if report else {}


async def _fetch_missing(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Fetch what is not ready yet, and why."""
    try:
        response = await client.get(url)
    except httpx2.HTTPError:
        return {"api": "does not answer yet"}
    if response.status_code == 200:
        return {}
    return {
        name: line["detail"]
        for name, line in response.json().get("dependencies", {}).items()
        if not line["ok"]
    } or {"api": f"answers {response.status_code}"}


EXIT_MISCONFIGURED = 2
HEALTHY_S = 30.0
STOP_TIMEOUT_S = 8.0
MAX_LOG_BYTES = 5 * 1024 * 1024
MAX_FIRST_STARTS = 5


@dataclass(slots=True)
class ChildProcess:
    """Run `anabranch <arguments>` with a socket as stdin: it stops when this process ends, for
    whatever reason.

    The child starts at once and imports its modules; then it waits on stdin for `variables`, the
    environment variables that are only known once the database runs.
    """

    fork_server: ForkServer
    name: str
    arguments: Sequence[str]
    variables: asyncio.Future[Mapping[str, str]]
    output: IO[bytes] | None
    on_start: Callable[[], None]
    own_variables: Mapping[str, str] = field(default_factory=dict)
    """Sent to this child only."""
    first_pause_s: float = 0.5
    max_pause_s: float = 15.0
    is_settled: bool = False
    process: ForkedProcess | None = None

    async def supervise(self) -> None:
        """Supervise until cancelled.

        Before the child is `settled`, raise FatalError if it reports MISCONFIGURED or keeps ending.
        Afterwards always restart it, so that the other processes continue.
        """
        pause = self.first_pause_s
        starts = 0
        while True:
            lifetime_s, code = await self._run_once()
            starts += 1
            output = "above" if self.output is None else f"at the end of {self.output.name}"
            if not self.is_settled and code == EXIT_MISCONFIGURED:
                raise FatalError(
                    f"{self.name} cannot start as configured; its own message is {output}",
                    code="MISCONFIGURED",
                )
            if not self.is_settled and starts >= MAX_FIRST_STARTS:
                raise FatalError(
                    f"{self.name} ended {starts} times before it was ready; its own messages are "
                    f"{output}",
                    code="KEEPS_ENDING",
                )
            pause = (
                # After a healthy run the back-off starts again.
                self.first_pause_s if lifetime_s > HEALTHY_S else min(self.max_pause_s, pause * 2)
            )
            log.error("process_restarted", process=self.name, exit_code=code, pause_s=pause)
            await asyncio.sleep(pause)

    async def _run_once(self) -> tuple[float, int | None]:
        """Return how long the child ran, and its exit code; None if it was killed."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        self.on_start()
        try:
            self.process = await self.fork_server.fork(
                self.name,
                self.arguments,
                # The parent's stdout is for results.
                STDERR_FD if self.output is None else self.output.fileno(),
            )
        except ConnectionError:
            return loop.time() - started_at, None
        # Shielded: the other children wait for the same future.
        line = json.dumps({**await asyncio.shield(self.variables), **self.own_variables}) + "\n"
        self.process.write(line.encode())
        code = await self.process.wait()
        return loop.time() - started_at, code

    async def stop(self) -> None:
        """Terminate the process; kill it after the timeout."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.process.wait()
        except TimeoutError:
            log.warning("process_killed", process=self.name)
            self.kill()
            await self.process.wait()

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)


log = structlog.get_logger(__name__)
T = TypeVar("T")
RUN_FOLDER = "run"
PORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """`arguments` make a child read the same settings. Without stages there is no worker."""

    settings: Settings
    arguments: Sequence[str] = ()
    stages: Sequence[str] = ("all",)
    ephemeral: bool = False
    output: IO[bytes] | None = None


@asynccontextmanager
async def run_server(
    plan: LaunchPlan, fork_server: ForkServer
) -> AsyncIterator[tuple[ServerInfo, asyncio.Future[None]]]:
    """Yield the ready server, and a future that fails when it cannot continue.

    Everything stops with the context. Raises ConfigurationError (unknown stage, folder in use, port
    taken) and LogUnavailable before creating anything, FatalError with code MISCONFIGURED,
    DatabaseUnavailable.
    """
    await _check_plan(plan)
    async with AsyncExitStack() as stack:
        plan = replace(plan, settings=stack.enter_context(_resolve_folder(plan)))
        token = (
            plan.settings.api.token.get_secret_value()
            if plan.settings.api.token
            else secrets.token_urlsafe(32)
        )
        stack.enter_context(lock_folder(plan.settings.data_dir))
        # A command that runs a server has a log of its own.
        if plan.output is None and plan.settings.logging.file is None:
            logging = plan.settings.logging.model_copy(
                update={"file": _open_log_file(plan.settings.data_dir)}
            )
            configure_logs(logging)
            plan = replace(plan, settings=plan.settings.model_copy(update={"logging": logging}))
        # Before anything is stored: the order of revisions depends on the kind of log.
        store_log_kind(plan.settings.data_dir, plan.settings)
        port = plan.settings.api.port or find_free_port(plan.settings.api.host)
        variables: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        children = _build_children(plan, fork_server, port, variables, token)
        # Before the database, which starts while the children import their modules. It is stopped
        # after them nevertheless.
        database = await stack.enter_async_context(AsyncExitStack())
        failed = await stack.enter_async_context(_supervise_children(children))
        dsn = await database.enter_async_context(
            open_database(plan.settings, is_ephemeral=plan.ephemeral)
        )
        variables.set_result(_build_variables(plan, dsn))
        server = await _wait_for_server(plan, dsn, port, token, failed)
        for child in children:
            child.is_settled = True
        # Last, so that commands that find the file find a ready server.
        write_server(plan.settings.data_dir / SERVER_FILE, server)
        stack.callback((plan.settings.data_dir / SERVER_FILE).unlink, missing_ok=True)
        yield server, failed


def _open_log_file(folder: Path) -> Path:
    """Return the file to log to; the one before is kept once it is large."""
    file = folder / UP_LOG_FILE
    if file.exists() and file.stat().st_size > MAX_LOG_BYTES:
        file.replace(f"{file}.1")
    file.touch(mode=0o600)
    return file


async def _check_plan(plan: LaunchPlan) -> None:
    """Check what can be checked before creating anything.

    Waits for the port of a killed server, whose children need a moment to end.
    """
    if _includes_ingress(plan.stages):
        check_ingress_settings(plan.settings)
    folder = plan.settings.data_dir
    if not plan.ephemeral:
        check_data_folder(folder)
        check_not_in_use(folder)
    await wait_for_free_port(
        plan.settings.api.host,
        plan.settings.api.port,
        timeout_s=PORT_TIMEOUT_S if has_killed_server(folder) else 0.0,
    )
    if plan.settings.log_kind == "kafka":
        from anabranch.kafka.settings import wait_for_kafka

        await wait_for_kafka(plan.settings)


def _includes_ingress(stages: Sequence[str]) -> bool:
    """Return whether the worker will run stage `receive`.

    Raises ConfigurationError for an unknown stage.
    """
    if tuple(stages) in ((), ("all",)):
        return bool(stages)
    # The stages import most of the program, which the usual start leaves to the fork server.
    from anabranch.process.ingress_settings import select_stages
    from processors import receive

    return receive.STAGE in select_stages(stages)


@contextmanager
def _resolve_folder(plan: LaunchPlan) -> Iterator[Settings]:
    """Make the data folder absolute; an ephemeral server gets a temporary one."""
    if not plan.ephemeral:
        yield plan.settings.model_copy(update={"data_dir": plan.settings.data_dir.resolve()})
        return
    with tempfile.TemporaryDirectory(prefix="anabranch-", ignore_cleanup_errors=True) as folder:
        make_folder(Path(folder))
        yield plan.settings.model_copy(update={"data_dir": Path(folder)})


def _build_variables(plan: LaunchPlan, dsn: str) -> dict[str, str]:
    variables = {"ANABRANCH_DATA_DIR": str(plan.settings.data_dir), "ANABRANCH_DATABASE__URL": dsn}
    # A child has a database URL, with which a new keystore would get no key file.
    if key_file := plan.settings.resolve_key_file():
        variables["ANABRANCH_LOG__KEY_FILE"] = str(key_file)
    if log_file := plan.settings.logging.file:
        variables["ANABRANCH_LOGGING__FILE"] = str(log_file.absolute())
    return variables


def _build_children(
    plan: LaunchPlan,
    fork_server: ForkServer,
    port: int,
    variables: asyncio.Future[Mapping[str, str]],
    token: str,
) -> list[ChildProcess]:
    host = ("--host", plan.settings.api.host)
    report = resolve_worker_report(plan.settings)
    api = ChildProcess(
        fork_server,
        "api",
        ["api", "--attached", "--port", str(port), *host, *plan.arguments],
        variables,
        plan.output,
        on_start=lambda: None,
        own_variables={"ANABRANCH_API__TOKEN": token},
    )
    if not plan.stages:
        return [api]
    options = ("--stages", ",".join(plan.stages), "--report", str(report))
    return [
        api,
        ChildProcess(
            fork_server,
            "worker",
            ["worker", "--attached", *options, *plan.arguments],
            variables,
            plan.output,
            # A report of an earlier run would make the worker look ready.
            on_start=lambda: report.unlink(missing_ok=True),
        ),
    ]


def resolve_worker_report(settings: Settings) -> Path:
    """Path of the file that the worker writes once it consumes."""
    folder = settings.data_dir / RUN_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "worker.json"


@asynccontextmanager
async def _supervise_children(
    children: Sequence[ChildProcess],
) -> AsyncIterator[asyncio.Future[None]]:
    supervision = [asyncio.create_task(child.supervise()) for child in children]
    failed: asyncio.Future[None] = asyncio.ensure_future(_wait_for_first_failure(supervision))
    try:
        yield failed
    finally:
        # First, so that stopping the children is not reported as a failure.
        failed.cancel()
        for task in supervision:
            task.cancel()
        try:
            await asyncio.gather(failed, *supervision, return_exceptions=True)
            await asyncio.gather(*(child.stop() for child in children))
        finally:
            # A second Ctrl-C cancels the wait above.
            for child in children:
                child.kill()


async def _wait_for_first_failure(tasks: Sequence[asyncio.Task[None]]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _wait_for_server(
    plan: LaunchPlan, dsn: str, port: int, token: str, failed: asyncio.Future[None]
) -> ServerInfo:
    settings = plan.settings
    # A wildcard address is one to listen on, not to connect to.
    host = settings.api.host if settings.api.host not in ("0.0.0.0", "::") else "127.0.0.1"
    url = f"http://{host}:{port}"
    worker_report_body = await _run_unless_failed(
        failed, wait_until_ready(url, resolve_worker_report(settings) if plan.stages else None)
    )
    return ServerInfo(
        url,
        token,
        None if settings.database.url else strip_password(dsn),
        settings.mode,
        settings.log_kind,
        os.getpid(),
        str(settings.data_dir),
        not plan.ephemeral,
        worker_metrics_url=worker_report_body.get("metrics_url"),
        outdated=worker_report_body.get("outdated"),
    )


async def _run_unless_failed(failed: asyncio.Future[None], work: Coroutine[None, None, T]) -> T:
    """Return the result of `work`, unless `failed` fails first."""
    task = asyncio.create_task(work)
    try:
        waiting: set[asyncio.Future[Any]] = {task, failed}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        return await task
    finally:
        task.cancel()
