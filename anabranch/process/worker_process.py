"""Run the worker process and its metrics server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

from anabranch.composition.worker import prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.config.version import get_program_version, warn_of_advisories
from anabranch.kafka.settings import wait_for_kafka
from anabranch.process.data_folder import check_data_folder
from anabranch.process.database import open_database
from anabranch.process.ingress_settings import check_ingress_settings, select_stages
from anabranch.process.tcp_ports import wait_for_free_port
from engines.disk import write_private
from processors import receive
from services.engines import make_outdated_error
from services.instrumentation.metrics import Metrics
from services.monitoring.gauge_updater import GaugeUpdater

STOP_POLL_S = 0.05
AUTOGROUP_FILE = Path("/proc/self/autogroup")


METRICS_TIMEOUT_S = 5.0


class _MetricsServer(ThreadingMixIn, WSGIServer):
    """A thread for each scrape; none of them delays the stop."""

    daemon_threads = True
    block_on_close = False


class _MetricsHandler(WSGIRequestHandler):
    timeout = METRICS_TIMEOUT_S
    """Longest pause of a client."""

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        # A web page may rebind its own name to this address.
        host = self.headers.get("host", "").rpartition(":")[0] or self.headers.get("host", "")
        is_local = ip_address(self.connection.getsockname()[0]).is_loopback
        if not is_local or is_numeric_host(host) or host in ("", "localhost", socket.gethostname()):
            return True
        self.send_error(421, "Use the address or localhost as host.")
        return False

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Do not log scrapes."""


def is_numeric_host(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


@contextmanager
def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Yield the URL. Raises OSError if the port is taken."""
    server = make_server(
        host,
        port,
        make_wsgi_app(registry),
        server_class=_MetricsServer,
        handler_class=_MetricsHandler,
    )
    thread = threading.Thread(
        target=server.serve_forever, args=(STOP_POLL_S,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        # Returns once `serve_forever` has noticed, at most STOP_POLL_S later.
        server.shutdown()
        server.server_close()
        thread.join()


log = structlog.get_logger(__name__)


def lower_priority(niceness: int) -> None:
    """Leave more of the CPU to other processes. Threads that start later inherit it.

    Linux may weigh sessions against each other, and processes only within a session
    (sched_autogroup in sched(7)). A process that leads a session, as `anabranch up` starts them,
    lowers that of the session too.
    """
    priority = os.nice(niceness)
    if AUTOGROUP_FILE.exists() and os.getsid(0) == os.getpid():
        try:
            AUTOGROUP_FILE.write_text(str(priority))
        # Without privileges the kernel takes one change per 0.1 s of the whole system. /proc may
        # also be read-only. The worker runs without.
        except OSError as error:
            log.warning("session_priority_not_lowered", reason=str(error))


async def run_worker(settings: Settings, stages: Iterable[str], report: Path | None) -> None:
    """Run until cancelled.

    Raises the error that stopped a stage, and ConfigurationError (unknown stage, port taken) before
    creating anything.
    """
    lower_priority(settings.worker.niceness)
    selected_stages, metrics = select_stages(stages), Metrics(get_program_version())
    metrics_address = (settings.worker.metrics_host, settings.worker.metrics_port)
    if any(stage is receive.STAGE for stage in selected_stages):
        check_ingress_settings(settings)
    # Beside an API, which warns of them.
    if report is None:
        warn_of_advisories()
    await wait_for_free_port(*metrics_address, option="--metrics-port")
    check_data_folder(settings.data_dir)
    await wait_for_kafka(settings)
    async with AsyncExitStack() as stack:
        url = stack.enter_context(serve_metrics(metrics.registry, *metrics_address))
        dsn = await stack.enter_async_context(open_database(settings, is_shared=True))
        worker = await stack.enter_async_context(
            prepare_worker(
                settings,
                dsn,
                stages=selected_stages,
                overrides=Overrides(watch=metrics.watch),
                instrumentation=metrics,
            )
        )
        log.info(
            "worker_started",
            stages=[stage.name for stage in selected_stages],
            generation=worker.generation.name,
            log=settings.log_kind,
            metrics=url,
        )
        if report is not None:
            outdated = None
            if worker.outdated_stages:
                error = make_outdated_error(worker.generation, worker.outdated_stages)
                outdated = f"{error.detail}. {error.remedy}"
            # Whole at once: `up` reads the file as soon as it exists.
            write_private(report, json.dumps({"metrics_url": url, "outdated": outdated}))
        async with asyncio.TaskGroup() as group:
            group.create_task(GaugeUpdater(worker.storage, metrics).run())
            group.create_task(worker.run())
